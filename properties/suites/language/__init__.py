"""Laws and mutants of what language models need: texts, tools, templates, tokens, their rewards and losses."""
