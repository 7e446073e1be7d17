"""stub"""


def verify(model: str) -> None:
    "Verify."
