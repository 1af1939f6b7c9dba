"""Train a model on prompts with a reward function: `python examples/arithmetic/problems.py arithmetic`, then this."""

import purestep


def right(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    return [
        float(text.rpartition("####")[2].strip() == wanted) for text, wanted in zip(completions, answer, strict=True)
    ]


if __name__ == "__main__":
    folder = "arithmetic"
    model, prompts = f"{folder}/warm/model", f"{folder}/problems.jsonl"
    purestep.train_text(model=model, prompts=prompts, reward=right, run="runs/arithmetic", steps=40, max_new_tokens=48)
