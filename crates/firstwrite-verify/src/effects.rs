//! Counts effects: by asking the API, by receiving webhooks, or by the ids in responses.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::sleep;

use crate::call::Call;
use crate::error::Error;
use crate::plan::{EffectsBy, Plan};
use crate::reply::Reply;
use crate::target::Target;
use crate::webhook::Webhook;
use crate::wire::{Connection, Trust};

/// Source of the number of effects.
#[derive(Debug)]
pub(crate) enum Counter {
    Url {
        target: Target,
        call: Box<Call>,
        pointer: String,
        wait: Duration,
    },
    Webhook(Webhook),
    Ids(String),
    /// Answers hold no id.
    Nothing,
}

/// A reading of the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(u64);

/// Longest lag of an effect behind its response: a counter that has not changed for this long has settled.
const REST: Duration = Duration::from_millis(60);
/// The same for webhooks, which are sent by workers that poll less often.
const WEBHOOK_REST: Duration = Duration::from_millis(700);
/// Readings after which a counter that still changes must have another writer.
const READINGS_MAX: usize = 25;

impl Counter {
    pub(crate) async fn new(plan: &Plan, target: &Target) -> Result<Self, Error> {
        match &plan.effects {
            EffectsBy::Ids(pointer) => Ok(Self::Ids(pointer.clone())),
            EffectsBy::Webhook(address) => Ok(Self::Webhook(Webhook::listen(address).await?)),
            EffectsBy::Url { url, pointer, headers } => {
                let counted = Target::resolve(url, plan.reach).await?;
                // Credentials go to the host that they were given for, and to no other.
                let is_same = counted.authority() == target.authority();
                let headers = if headers.is_empty() && is_same { &plan.headers } else { headers };
                let call = Call::new(Method::GET, counted.path_and_query());
                let call = headers.iter().fold(call, Call::given);
                let (pointer, wait) = (pointer.clone(), plan.limits.answer);
                Ok(Self::Url { target: counted, call: Box::new(call), pointer, wait })
            }
        }
    }

    pub(crate) fn webhook_url(&self) -> Option<&str> {
        match self {
            Self::Webhook(webhook) => Some(webhook.url()),
            Self::Url { .. } | Self::Ids(_) | Self::Nothing => None,
        }
    }

    /// Describes how effects are counted.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Url { target, pointer, .. } => format!("`{pointer}` of {target}"),
            Self::Webhook(webhook) => format!("what arrives at {}", webhook.url()),
            Self::Ids(pointer) => format!("the ids at `{pointer}` of answers"),
            Self::Nothing => "not counted".to_owned(),
        }
    }

    /// Reads the counter once it has settled.
    pub(crate) async fn mark(&self, trust: Option<&Trust>) -> Result<Mark, String> {
        let rest = match self {
            Self::Ids(_) | Self::Nothing => return Ok(Mark(0)),
            Self::Url { .. } => REST,
            Self::Webhook(_) => WEBHOOK_REST,
        };
        let mut last = self.read(trust).await?;
        for _ in 0..READINGS_MAX {
            sleep(rest).await;
            let next = self.read(trust).await?;
            if next == last {
                return Ok(Mark(next));
            }
            last = next;
        }
        Err("the effects' counter does not come to rest: is somebody else at work there?"
            .to_owned())
    }

    /// Returns the number of effects since `mark`, or `None` if it is unknown. `known` are the responses before it.
    pub(crate) async fn since(
        &self,
        mark: Mark,
        (known, replies): (&[&Reply], &[&Reply]),
        trust: Option<&Trust>,
    ) -> Result<Option<u64>, String> {
        match self {
            Self::Nothing => Ok(None),
            Self::Ids(pointer) => Ok(new_ids(pointer, known, replies)),
            Self::Url { .. } | Self::Webhook(_) => {
                let now = self.mark(trust).await?;
                Ok(Some(now.0.saturating_sub(mark.0)))
            }
        }
    }

    async fn read(&self, trust: Option<&Trust>) -> Result<u64, String> {
        match self {
            Self::Webhook(webhook) => Ok(webhook.count()),
            Self::Ids(_) | Self::Nothing => Ok(0),
            Self::Url { target, call, pointer, wait } => {
                let fail = |what: String| format!("cannot count effects at {target}: {what}");
                let mut connection = Connection::open(target, trust, *wait)
                    .await
                    .map_err(|silence| fail(silence.to_string()))?;
                let asked = connection.write(&call.bytes(target.authority())).await;
                asked.map_err(|silence| fail(silence.to_string()))?;
                let answer =
                    connection.answer().await.map_err(|silence| fail(silence.to_string()))?;
                if !answer.is_success() {
                    return Err(fail(format!("it answers {}", answer.status)));
                }
                let document: Value = serde_json::from_slice(&answer.body)
                    .map_err(|error| fail(format!("no JSON: {error}")))?;
                number(&document, pointer)
                    .ok_or_else(|| fail(format!("no number and no list at `{pointer}`")))
            }
        }
    }
}

/// A number, or how many there are in a list or an object.
fn number(document: &Value, pointer: &str) -> Option<u64> {
    match document.pointer(pointer)? {
        Value::Number(number) => number.as_u64(),
        Value::Array(items) => u64::try_from(items.len()).ok(),
        Value::Object(members) => u64::try_from(members.len()).ok(),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) => None,
    }
}

/// Counts the different ids in successful responses, leaving out those in `known`. Returns `None` if such a
/// response has no id.
fn new_ids(pointer: &str, known: &[&Reply], replies: &[&Reply]) -> Option<u64> {
    let ids = |replies: &[&Reply]| -> Option<BTreeSet<String>> {
        let answers = replies.iter().filter_map(|reply| reply.answer());
        answers.filter(|one| one.is_success()).map(|one| id(pointer, &one.body)).collect()
    };
    u64::try_from(ids(replies)?.difference(&ids(known)?).count()).ok()
}

/// The id of what an answer says was made.
pub(crate) fn id(pointer: &str, body: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(body).ok()?;
    document.pointer(pointer).filter(|id| id.is_string() || id.is_number()).map(Value::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_numbers_texts_and_lists() {
        let document: Value = serde_json::json!({"n": 3, "list": [1, 2], "text": "4", "no": null});
        let at = |pointer| number(&document, pointer);
        assert_eq!(
            [at("/n"), at("/list"), at("/text"), at("")],
            [Some(3), Some(2), Some(4), Some(4)]
        );
        assert_eq!([at("/no"), at("/absent")], [None, None]);
    }

    #[tokio::test]
    async fn credentials_go_to_the_host_that_they_were_given_for() {
        let mut plan = Plan::new("http://127.0.0.1:1/orders", Method::POST, "{}");
        plan.headers = vec![("Authorization".to_owned(), "Bearer secret".to_owned())];
        let target = Target::resolve(&plan.url, plan.reach).await.unwrap();
        for (url, is_told) in
            [("http://127.0.0.1:1/count", true), ("http://127.0.0.1:2/count", false)]
        {
            let (url, pointer, headers) = (url.to_owned(), "/count".to_owned(), Vec::new());
            plan.effects = EffectsBy::Url { url, pointer, headers };
            let counter = Counter::new(&plan, &target).await.unwrap();
            let Counter::Url { call, .. } = counter else { panic!("a URL counts") };
            assert_eq!(call.has("authorization"), is_told);
        }
    }

    #[test]
    fn an_id_is_a_text_or_a_number() {
        assert_eq!(id("/id", br#"{"id":"a"}"#).as_deref(), Some("\"a\""));
        assert_eq!(id("/id", br#"{"id":7}"#).as_deref(), Some("7"));
        assert_eq!(id("/id", br#"{"id":[7]}"#), None);
        assert_eq!(id("/id", b"no JSON"), None);
    }
}
