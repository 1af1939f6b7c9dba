"""Training a language model on several processes, which torchrun or another launcher has started."""
