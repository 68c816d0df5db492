"""The one exception for bad input, and the one place that turns it into a sentence and exit code 2."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class InputError(ValueError):
    """Something the user gave is wrong. The message is one sentence: file, field, value, remedy."""


@contextmanager
def exit_on_input_error() -> Iterator[None]:
    """Prints an InputError or a file-system error as one line on stderr and exits with code 2; numbers that are not finite, with code 1.

    Everything else propagates.
    """
    code = 2
    try:
        yield
    except InputError as error:
        message = str(error)
    except FloatingPointError as error:
        message, code = str(error), 1
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if error.errno in NO_ROOM:
            message += "; make room there, then give the same command again"
    else:
        return
    print(f"papergym: {message}", file=sys.stderr)
    sys.exit(code)
