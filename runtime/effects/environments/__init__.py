"""Environments of other libraries as tasks for a language model: OpenEnv servers and verifiers' tasksets."""
