A=(--tp ${TP:-2} # c
 --ep "$EP")
if [ $X ]; then A+=(--b); fi
B="--c 1
 --d $(hostname)"
X=1 torchrun train.py ${A[@]} $B a.b=3 > log 2>&1 <<EOT
--e
EOT
