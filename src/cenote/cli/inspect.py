"""stub"""


def inspect(model: str) -> None:
    "Inspect."
