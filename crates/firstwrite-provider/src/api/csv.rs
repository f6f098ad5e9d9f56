//! `GET /v1/payments.csv`: everything of a time in one answer, as files from providers are.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{Response, header};
use axum::response::IntoResponse as _;
use futures_util::stream;

use super::reports::{Asked, may_answer, not_understood};
use crate::payment::Payment;
use crate::problem::Problem;
use crate::shared::Shared;

const HEAD: &str = "id,idempotency_key,amount,currency,reference,created_at\n";
/// Lines that are put together at once: the file is never in memory as a whole.
const PIECE_LINES: usize = 1000;

pub(super) async fn export(
    State(shared): State<Arc<Shared>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response<Body>, Problem> {
    may_answer(&shared)?;
    let Query(asked) = asked.map_err(|error| not_understood(&error))?;
    let question = asked.question(&shared)?;
    let pieces = stream::unfold((shared, Some(question), HEAD.to_owned()), async |state| {
        let (shared, question, mut text) = state;
        let mut question = question?;
        let (payments, next) = shared.book().list(&question, PIECE_LINES);
        for payment in &payments {
            line(payment, &mut text);
        }
        let rest = next.is_some().then(|| {
            question.after = next;
            question
        });
        Some((Ok::<_, Infallible>(text), (shared, rest, String::new())))
    });
    let headers = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

fn line(payment: &Payment, text: &mut String) {
    field(&payment.id, text);
    text.push(',');
    field(payment.idempotency_key.as_deref().unwrap_or_default(), text);
    write!(text, ",{},", payment.amount).expect("a string takes any text");
    field(&payment.currency, text);
    text.push(',');
    field(payment.reference.as_deref().unwrap_or_default(), text);
    writeln!(text, ",{}", payment.created_at).expect("a string takes any text");
}

/// A field, quoted where RFC 4180 wants it.
fn field(value: &str, text: &mut String) {
    if value.contains(['"', ',', '\n', '\r']) {
        text.push('"');
        text.push_str(&value.replace('"', "\"\""));
        text.push('"');
    } else {
        text.push_str(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;

    #[test]
    fn fields_that_would_break_the_line_are_quoted() {
        let payment = Payment {
            id: "pay_00000001".to_owned(),
            amount: 5,
            currency: "EUR".to_owned(),
            reference: Some("say \"hi\"".to_owned()),
            idempotency_key: Some("a,b".to_owned()),
            created_at: Moment::from_millis(0),
        };
        let mut text = String::new();
        line(&payment, &mut text);
        let told = "pay_00000001,\"a,b\",5,EUR,\"say \"\"hi\"\"\",1970-01-01T00:00:00.000Z\n";
        assert_eq!(text, told);
    }
}
