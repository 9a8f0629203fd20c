"""Define options that several commands share, with the same meaning everywhere."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from orchestrator.app.context.choice import Choice
from orchestrator.errors import AuthError, TpuctlError, UsageError

F = TypeVar("F", bound=Callable[..., Any])


class SharedOption(click.Option):
    """An option for all commands, which may also stand before the command."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Return the value given after the command, else before it, else click's default."""
        root = ctx.find_root()
        name = self.name or ""
        if name in opts or ctx is root or root.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            return super().consume_value(ctx, opts)
        return root.params[name], ParameterSource.COMMANDLINE


class Command(click.Command):
    """A command with --quiet and --color, whose help lists its own options before the shared ones."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += talk_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two sections."""
        write_options(self, ctx, formatter, "Options", shared=False)
        write_options(self, ctx, formatter, "Common options", shared=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words after the command. Raise UsageError for one too many, which may be meant as a NAME."""
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            reads_file = {"file", "name"} & {param.name for param in self.params} == {"file"}
            raise UsageError(
                f"`{ctx.command_path}` takes no {rest[0]!r}",
                hint=f"run it in the folder of its tpuctl.yaml, or: {ctx.command_path} --file FILE"
                if reads_file else f"see: {ctx.command_path} --help",
                changed="nothing was changed", code="TPU-101",
            )  # fmt: skip
        return rest


class VerbGroup(click.Group):
    """A group that runs the verb *plain* by default: `tpuctl config` is `tpuctl config show`."""

    def __init__(self, *args: Any, plain: str = "", **settings: Any) -> None:
        super().__init__(*args, context_settings={"help_option_names": ["-h", "--help"]}, **settings)
        self.plain = plain

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of their use."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default verb if none is given, except during shell completion."""
        known = {*self.commands, *ctx.help_option_names}
        if self.plain and not ctx.resilient_parsing and (not args or args[0] not in known):
            args = [self.plain, *args]
        return super().parse_args(ctx, args)


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter, title: str, *, shared: bool
) -> None:
    """Write one section of a command's help: the options of all commands if *shared*, else its own."""
    params = [p for p in command.get_params(ctx) if isinstance(p, SharedOption) is shared]
    options = [p for p in params if isinstance(p, click.Option)]
    records = [found for p in options if (found := p.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


def refuse_misplaced(root: click.Context, command: click.Command) -> None:
    """Raise UsageError for an option before a command that has no such option."""
    known = {param.name for param in command.params}
    for param in root.command.params:
        given = root.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if isinstance(param, SharedOption) and given and param.name not in known:
            raise UsageError(
                f"`tpuctl {command.name}` has no option {param.opts[0]}", hint=f"see: tpuctl {command.name} --help",
                changed="nothing was changed", code="TPU-101",
            )  # fmt: skip


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the deployments whose name starts with *incomplete*, each with its project."""
    # Every --help imports this module, and only shell completion needs the folders.
    from orchestrator.app.this_computer.state_folders import known_files

    cloud = str(ctx.params.get("cloud") or os.environ.get("TPUCTL_CLOUD") or "gcp")
    folders = (path.parent for path in known_files(cloud))
    return [CompletionItem(f.name, help=f.parent.name) for f in folders if f.name.startswith(incomplete)]


def exclusive(*alternatives: str | Sequence[str], hint: str = "leave one of them out") -> Callable[[F], F]:
    """
    Refuse a command line with options of more than one of *alternatives*.

    An alternative is one option or several, each named as in the help: `--live`, or NAME for an argument.
    """

    def check(ctx: click.Context) -> None:
        groups = ((one,) if isinstance(one, str) else one for one in alternatives)
        given = [named[0] for group in groups if (named := [one for one in group if _is_given(ctx, one)])]
        if len(given) > 1:
            raise UsageError(
                f"{', '.join(given[:-1])} and {given[-1]} exclude each other", hint=hint,
                changed="nothing was changed",
            )  # fmt: skip

    return _checked(check)


def follow_option(text: str) -> Callable[[F], F]:
    """Add `--follow` to a command that only looks; `--watch`, as other tools have it, works and is not shown."""

    def decorate(function: F) -> F:
        @click.option("-f", "--follow", is_flag=True, help=text)
        @click.option("-w", "--watch", "watch_alias", is_flag=True, hidden=True)
        @functools.wraps(function)
        def following(*args: Any, follow: bool, watch_alias: bool, **values: Any) -> Any:
            return function(*args, follow=follow or watch_alias, **values)

        return cast("F", following)

    return decorate


def needs(option: str, other: str, *, hint: str) -> Callable[[F], F]:
    """Refuse a command line with *option* and without *other*, each named as in the help."""

    def check(ctx: click.Context) -> None:
        if _is_given(ctx, option) and not _is_given(ctx, other):
            raise UsageError(f"{option} goes with {other}", hint=hint, changed="nothing was changed")

    return _checked(check)


def _checked(check: Callable[[click.Context], None]) -> Callable[[F], F]:
    """Return a decorator that lets *check* look at the command line before the command runs."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def checked(*args: Any, **values: Any) -> Any:
            check(click.get_current_context())
            return function(*args, **values)

        return cast("F", checked)

    return decorate


def _is_given(ctx: click.Context, word: str) -> bool:
    """Return whether the option or argument *word* stands on the command line, not only its default."""
    # click names an argument by its variable: NAME is `name`. A word that is none of the command's is a bug.
    (param,) = (one for one in ctx.command.params if word.lower() in one.opts)
    return ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE


_PERHAPS_LOCAL = frozenset({"TPU-201", "TPU-137"})
"""Errors of Google's cloud that users of the local one get: no credentials, no such deployment."""


_NO_FILE = "TPU-111"
_WRONG_FILE = frozenset({"TPU-110", "TPU-112"})


def _name_instead(error: TpuctlError, cloud: str) -> None:
    """Add to an error about the deployment file how the command reaches a deployment by its name."""
    if error.code != _NO_FILE and error.code not in _WRONG_FILE:
        return
    from orchestrator.app.this_computer.known import way_by_name

    command = click.get_current_context().command_path
    way = way_by_name(cloud, command)
    if error.code in _WRONG_FILE:
        error.explain(hint=f"{error.hint}; without the file: {way}" if way else "")
        return
    # Not only `init`: a new file describes another deployment, and the machines of this one would stay.
    other = f"{command} --file FILE"
    error.explain(hint=f"run: {way}; or: {other}" if way else f"{other}; for a first deployment: tpuctl init")


def deployment_options(function: F) -> Callable[..., Any]:
    """
    Add the options that select a deployment: --file, --set, --cloud, --json.

    The command gets them as one `Choice`.
    """

    @functools.wraps(function)
    def chosen(
        *, file: Path | None, settings: Sequence[str], cloud: str, as_json: bool, account_override: bool,
        **more: Any,
    ) -> Any:  # fmt: skip
        choice = Choice(file, settings, cloud, as_json, account_override)
        try:
            return function(choice, **more)
        except (AuthError, UsageError) as error:
            # TPUCTL_CLOUD is set in one shell only and easily forgotten in another.
            if cloud == "gcp" and error.code in _PERHAPS_LOCAL:
                from orchestrator.app.this_computer.known import on_local_cloud

                name = on_local_cloud(choice, more.get("name"))
                if name:
                    error.explain(
                        hint=f"{name} is up on the local cloud: add --cloud local; else: {error.hint}"
                    )
            if not more.get("name", "?"):
                _name_instead(error, cloud)
            raise

    return settings_options(cloud_option(json_option(override_option(chosen))))


override_option = click.option(
    "--account-override",
    cls=SharedOption,
    is_flag=True,
    help="Act although another project, login or computer brought the deployment up.",
)


def settings_options(function: F) -> F:
    """Add the options for the deployment file and its overrides: --file, --set."""
    file = click.option(
        "--file",
        cls=SharedOption,
        type=click.Path(path_type=Path, dir_okay=False),
        help="Deployment file. Default: tpuctl.yaml here or in a folder above.",
    )
    settings = click.option(
        "--set",
        "settings",
        cls=SharedOption,
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a setting, for example --set tpu.spot=false.",
    )
    return file(settings(function))


cloud_option = click.option(
    "--cloud",
    cls=SharedOption,
    type=click.Choice(["gcp", "local"]),
    # The real cloud by default: a local run must never be taken for a real one.
    default="gcp",
    envvar="TPUCTL_CLOUD",
    show_default=True,
    help="gcp: Google Cloud. local: the local cloud on this computer.  [env: TPUCTL_CLOUD]",
)
json_option = click.option("--json", "as_json", cls=SharedOption, is_flag=True, help="Print JSON to stdout.")


def talk_options() -> list[click.Parameter]:
    """Return --quiet and --color, which affect the output only."""
    return [
        SharedOption(
            ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_be_quiet,
            help="Print the result and errors only, as cron jobs want it.",
        ),
        SharedOption(
            ["--color"], type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
            expose_value=False, callback=_choose_colour,
            help="auto: on a terminal, unless NO_COLOR, FORCE_COLOR, CLICOLOR or CLICOLOR_FORCE is set.",
        ),
    ]  # fmt: skip


def _be_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.find_root().params["quiet"] = value
    if value and not ctx.resilient_parsing:
        from orchestrator.cli import console

        console.quiet = True
        ctx.find_root().call_on_close(console.end_quiet)


def _choose_colour(ctx: click.Context, _: click.Parameter, value: str) -> None:
    """Set the two variables that rich and our own views read (https://no-color.org)."""
    ctx.find_root().params["color"] = value
    environment = os.environ
    if value == "auto" and not (environment.get("NO_COLOR") or environment.get("FORCE_COLOR")):
        if environment.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
            environment["FORCE_COLOR"] = "1"
        elif environment.get("CLICOLOR") == "0":
            environment["NO_COLOR"] = "1"
    if value != "auto":
        wanted, other = ("FORCE_COLOR", "NO_COLOR") if value == "always" else ("NO_COLOR", "FORCE_COLOR")
        environment[wanted] = "1"
        environment.pop(other, None)


name_argument = click.argument("name", required=False, shell_complete=complete_name)
"""NAME of a deployment that this computer has brought up; needs no file."""
home_option = click.option(
    "--home",
    is_flag=True,
    help="The machine itself: the login's home, without the job's variables and image.",
)


def acts_on_name(function: F) -> F:
    """Add NAME to a command that changes the deployment; a file or settings beside it might differ from it."""
    hint = "NAME is the deployment as the last `up` brought it up: leave one of them out; see: tpuctl status --all"
    return name_argument(exclusive("NAME", ("--file", "--set"), hint=hint)(function))


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def output_option(
    default: str = "", *, text: str = "Where to write.", folder: bool = False, exists: bool = False
) -> Callable[[F], F]:
    """
    Add -o/--output, the file or *folder* to write; with *exists* the folder may exist.

    *default* describes what is written without it, "" if nothing is.
    """
    return click.option(
        "-o",
        "--output",
        metavar="FOLDER" if folder else "FILE",
        type=click.Path(path_type=Path, file_okay=not exists, dir_okay=folder),
        help=f"{text}  [default: {default}]" if default else text,
    )
