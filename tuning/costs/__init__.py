"""Costs of tasks and stages, and the model that combines them into costs of collectives."""
