"""The application object: `gantline worker examples.battery_passport.application:jobs`.

The store is GANTLINE_STORE; where that is not SQL, GANTLINE_OUTBOX names the database of the
application's own tables.
"""

from examples.battery_passport.assembly import make_jobs

jobs = make_jobs()
