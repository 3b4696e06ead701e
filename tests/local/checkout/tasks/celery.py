"""A stand-in for the queue edge: workers without tasks."""

import os

from celery import Celery

app = Celery("stand-in", broker=os.environ["BROKER_URL"])
app.conf.broker_connection_retry_on_startup = True
