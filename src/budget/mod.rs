//! budgets.yaml.
