"""An application that decides who may poll: ann may poll everything."""


def may_poll(channels: tuple[str, ...], headers: dict[str, str]) -> bool:
    return headers.get("cookie") == "user=ann"
