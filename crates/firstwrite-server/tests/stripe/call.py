"""Makes one payment with the official library and prints how that ended, as one line of JSON.

    call.py URL KEY DESCRIPTION
"""

import json
import sys

import stripe

stripe.enable_telemetry = False

url, key, description = sys.argv[1:]
# What the library would try again is what is asked about here.
client = stripe.StripeClient("sk_test_firstwrite", base_addresses={"api": url}, max_network_retries=0)
try:
    made = client.v1.payment_intents.create(
        {"amount": 4990, "currency": "eur", "description": description}, {"idempotency_key": key}
    )
    ended = {"answered": made.id}
except stripe.StripeError as error:
    ended = {"raised": type(error).__name__, "status": error.http_status}
print(json.dumps(ended))
