"""A reward function as TRL calls it: 1 for the right number after ####."""


def right(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    """Compare the text after the last #### with the column `answer` of each prompt."""
    return [
        float(text.rpartition("####")[2].strip() == wanted) for text, wanted in zip(completions, answer, strict=True)
    ]
