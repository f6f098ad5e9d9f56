// Makes one payment with the official library and prints how that ended, as one line of JSON.
//
//   call.cjs URL KEY DESCRIPTION

"use strict";

const Stripe = require("stripe");

const [url, key, description] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const stripe = new Stripe("sk_test_firstwrite", {
  host: hostname,
  port,
  protocol: "http",
  // What the library would try again is what is asked about here.
  maxNetworkRetries: 0,
  telemetry: false,
});

stripe.paymentIntents
  .create({ amount: 4990, currency: "eur", description }, { idempotencyKey: key })
  .then(
    (made) => ({ answered: made.id }),
    (error) => ({ raised: error.type, status: error.statusCode }),
  )
  .then((ended) => console.log(JSON.stringify(ended)));
