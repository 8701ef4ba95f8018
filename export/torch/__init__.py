"""TorchScript and torch.export: the same modules in two file formats."""
