"""Models, tokenizers and weight files of Hugging Face."""
