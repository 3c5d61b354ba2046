"""Which wake-ups an application uses: its store's own, and a broker's beside it."""

from gantline.contract.errors import StoreMisconfigured
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Channel, PostgresChannel, RedisChannel, Wakeup
from gantline.wakeups.local import Hub, InProcessWakeup, LocalSocketWakeup, SeveralWakeups
from gantline.wakeups.remote import RemoteWakeup
from gantline.wakeups.trigger import parse_trigger


def wakeup_for(store: JobStore, hub: Hub, broker: RemoteWakeup | None) -> Wakeup:
    """Beside a SQLite file by sockets; otherwise in this process, and by the store's server."""
    ways: list[Wakeup] = []
    if (file := store.capabilities.local_file) is not None:
        ways.append(LocalSocketWakeup(file))
    else:
        ways.append(InProcessWakeup(hub))
    if (channel := store.channel) is not None:
        ways.append(_by_server(channel))
    if broker is not None:
        ways.append(broker)
    return ways[0] if len(ways) == 1 else SeveralWakeups(ways)


def _by_server(channel: Channel) -> Wakeup:
    """Only users of a server have its driver."""
    match channel:
        case PostgresChannel():
            from gantline.wakeups.postgres import postgres_wakeup

            return postgres_wakeup(channel)
        case RedisChannel():
            from gantline.wakeups.redis import redis_wakeup

            return redis_wakeup(channel)


def broker_from_url(url: str) -> RemoteWakeup | None:
    """Make the wake-up of a trigger URL; None for an empty one."""
    if not url:
        return None
    trigger = parse_trigger(url)
    try:
        from gantline.wakeups.rabbitmq import rabbitmq_wakeup  # likewise
    except ModuleNotFoundError as error:
        raise StoreMisconfigured(
            f"A trigger needs the module {error.name}, which is not installed.",
            next_step="Run `pip install 'gantline[rabbitmq]'`.",
        ) from error
    return rabbitmq_wakeup(trigger)
