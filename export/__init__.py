"""Exporters: what a trained model becomes outside PyTorch."""
