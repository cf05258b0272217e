axolotl train axolotl.yaml
