"""Jobs of what was typed in: as the application declares them, where one is named."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gantline.api.envelopes import Envelope
from gantline.api.preparing import prepare_envelope, undeclared
from gantline.app.job_type import JobType
from gantline.cli.talk import say
from gantline.contract.errors import InvalidInput
from gantline.contract.job import Job, check_expires_in
from gantline.manager.submitter import Submission

if TYPE_CHECKING:
    from gantline.cli.session import Cli


def prepare(cli: "Cli", name: str, payload: msgspec.Raw, **options: Any) -> Submission:
    """Make a job of a type; the options are those of `JobType.submit`, None is not said.

    With an application it is checked and completed by its declaration: raise InvalidInput.
    """
    said = {option: value for option, value in options.items() if value is not None}
    if not _has_app(cli):
        return _undeclared(cli, name, payload, **said)
    declared = _declared(cli, name)
    made = declared.prepare(_decoded(declared, bytes(payload)), tenant=cli.tenant, **said)
    return Submission(made.job, made.delay)


def prepare_said(cli: "Cli", said: Envelope) -> Submission:
    """Make a job of an envelope, likewise."""
    if not _has_app(cli):
        return undeclared(said, tenant=cli.tenant, now=cli.clock.now())
    _declared(cli, said.job_type)
    made = prepare_envelope(cli.app(), said, tenant=cli.tenant)
    return Submission(made.job, made.delay)


def _has_app(cli: "Cli") -> bool:
    if not cli.settings["app"]:
        say("No application is named (--app), so the payload is not checked.")
        return False
    return True


def _declared(cli: "Cli", name: str) -> JobType[..., Any]:
    found = cli.app().find_type(name)
    if found is None:
        known = sorted(one.name for one in cli.app().job_types)
        raise InvalidInput(
            f"The application declares no job {name!r}.",
            next_step=f"It declares {', '.join(known) or 'none'}.",
        )
    return found


def _undeclared(
    cli: "Cli",
    name: str,
    payload: msgspec.Raw,
    *,
    delay: timedelta = timedelta(0),
    expires_in: timedelta | None = None,
    subject: str = "",
    owner: str = "",
    **others: Any,
) -> Submission:
    check_expires_in(expires_in)
    now = cli.clock.now()
    job = Job(
        job_type=name,
        payload=payload,
        tenant_id=cli.tenant,
        subject_id=subject,
        created_by=owner,
        created_at=now,
        expires_at=None if expires_in is None else now + expires_in,
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
