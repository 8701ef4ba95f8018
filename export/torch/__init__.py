"""TorchScript and torch.export: the same modules, written two ways."""
