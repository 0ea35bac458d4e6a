"""Run commands of ``han`` in this process."""

from typer.testing import CliRunner

from han.cli.main import app
from han.common.errors import ArgumentError


def call(*arguments):
    """Run a command that must succeed; return what it prints."""
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refuse(*arguments, kind=ArgumentError):
    """Run a command that must raise an error of a kind; return the error's text."""
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert isinstance(done.exception, kind), (done.output, done.exception)
    return str(done.exception)
