"""Jobs of what was typed in: as the application declares them, where one is named."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gantline.app.job_type import JobType
from gantline.cli.talk import say
from gantline.contract.errors import InvalidInput
from gantline.contract.job import Job
from gantline.manager.submitter import Submission

if TYPE_CHECKING:
    from gantline.cli.session import Cli


def prepare(cli: "Cli", name: str, payload: msgspec.Raw, **options: Any) -> Submission:
    """Make a job of a type; the options are those of `JobType.submit`, None is not said.

    With an application it is checked and completed by its declaration: raise InvalidInput.
    """
    said = {option: value for option, value in options.items() if value is not None}
    if not cli.settings["app"]:
        say("No application is named (--app), so the payload is not checked.")
        return _undeclared(cli, name, payload, **said)
    known = {one.name: one for one in cli.app().job_types}
    if name not in known:
        raise InvalidInput(
            f"The application declares no job {name!r}.",
            next_step=f"It declares {', '.join(sorted(known)) or 'none'}.",
        )
    made = known[name].prepare(_decoded(known[name], bytes(payload)), tenant=cli.tenant, **said)
    return Submission(made.job, made.delay)


def _undeclared(
    cli: "Cli",
    name: str,
    payload: msgspec.Raw,
    *,
    delay: timedelta = timedelta(0),
    subject: str = "",
    owner: str = "",
    **others: Any,
) -> Submission:
    job = Job(
        job_type=name,
        payload=payload,
        tenant_id=cli.tenant,
        subject_id=subject,
        created_by=owner,
        created_at=cli.clock.now(),
        **others,
    )
    return Submission(job, delay)


def _decoded(declared: JobType[..., Any], body: bytes) -> Any:
    codec = declared.handler.codec
    try:
        return codec.decode(body)
    except InvalidInput as error:
        fields = ", ".join(_fields_of(codec.schema()))
        next_step = f"It has the fields {fields}." if fields else ""
        if body == b"null":
            raise InvalidInput("No payload was given.", next_step=next_step) from None
        if body[:1].isalpha() and body.isascii():
            next_step += f""" A text is written as '"{body[:64].decode()}"'."""
        raise InvalidInput(error.cause, next_step=next_step.strip()) from None


def _fields_of(schema: dict[str, Any]) -> list[str]:
    """The fields as they are called in JSON, in their order; none where it is no object."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return list(schema.get("$defs", {}).get(name, schema).get("properties", {}))
