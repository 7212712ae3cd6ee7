"""What a program may meet when it runs against a server.

ClientError               base
+-- Refused             the server answered with an error status; `status`, `param`
+-- Unreachable         no server, or none that answers, within the retry window
+-- BrokenAnswer        a stream that ended early, or an answer that is not what was asked for
+-- ProgramError        the program uses the language wrongly
+-- Unsupported         the backend cannot do this; the message says which can
+-- Cancelled           `cancel()` ended the branch
+-- BudgetExceeded      an agent ran out of turns or tokens before its final answer
+-- EngineFailed        a local server did not start, or has ended
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors that running a program raises on purpose.

    >>> issubclass(tr.Refused, tr.ClientError)
    True
    """


class Refused(ClientError):
    """The server's answer is an error.

    >>> tr.Refused(400, "top_p must be above 0", "top_p").status
    400
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.message = message
        self.param = param


class Unreachable(ClientError):
    """No answer from the server; what was tried is in the message.

    >>> raise tr.Unreachable("http://a:30000: refused")
    Traceback (most recent call last):
    treadle.client.errors.Unreachable: http://a:30000: refused
    """


class BrokenAnswer(ClientError):
    """An answer that ended early or has another form than the protocol's.

    >>> issubclass(tr.BrokenAnswer, tr.ClientError)
    True
    """


class ProgramError(ClientError):
    """The program uses the language wrongly, as `gen` outside of a role in a chat.

    >>> issubclass(tr.ProgramError, tr.ClientError)
    True
    """


class Unsupported(ClientError):
    """The backend does not have this feature.

    >>> issubclass(tr.Unsupported, tr.ClientError)
    True
    """


class Cancelled(ClientError):
    """The branch was cancelled before it reached this.

    >>> state = tr.function(lambda s: s.cancel()).run()
    >>> isinstance(state.error(), tr.Cancelled)
    True
    """


class BudgetExceeded(ClientError):
    """An agent stopped without a final answer: out of turns or tokens.

    >>> str(tr.BudgetExceeded("8 turns"))
    '8 turns'
    """


def describe(error: BaseException) -> str:
    """Its kind and message, as text that can be sent, whatever foreign code made of it."""
    kind = type(error).__name__
    try:
        text = f"{kind}: {error}"
    except Exception:  # of its own __str__
        text = kind
    return text.encode(errors="backslashreplace").decode()


class EngineFailed(ClientError):
    """A local server did not come up or is gone; the message ends with its log.

    >>> issubclass(tr.EngineFailed, tr.ClientError)
    True
    """
