"""Text environments as pure steps: parsing of completions, the turn protocol, tasks with tools. No tokenizer and no model."""
