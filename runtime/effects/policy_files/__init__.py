"""A trained policy as a file for other programs, without purestep: torch.export, ONNX, or its tensors."""
