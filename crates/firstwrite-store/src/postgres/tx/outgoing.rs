//! Messages of a handler, kept until they are written with its outcome.

use std::collections::HashSet;

use firstwrite_core::{Message, RecordId, StoreError, Tenant};
use tokio_postgres::types::ToSql;

use crate::encoding::encode_answers;
use crate::postgres::columns::Id;
use crate::postgres::driver_error::{DriverError, unsupported};
use crate::postgres::link::Link;
use crate::postgres::profiles::whole_millis;

/// Maximum number of messages of a transaction. A handler that needs more should combine them.
const COUNT_MAX: usize = 1000;

/// Messages that wait for the commit.
#[derive(Default)]
pub(crate) struct Outgoing {
    messages: Vec<Message>,
    identities: HashSet<(Tenant, String)>,
}

impl Outgoing {
    pub(crate) fn push(&mut self, message: &Message) -> Result<(), StoreError> {
        const DOING: &str = "enqueuing a message";
        if self.messages.len() >= COUNT_MAX {
            return Err(unsupported(DOING, "a transaction takes at most 1000 messages"));
        }
        let identity = (message.tenant().clone(), message.derived_key().to_owned());
        if !self.identities.insert(identity) {
            return Err(unsupported(
                DOING,
                "the step was enqueued before in this transaction; name each message's step apart",
            ));
        }
        self.messages.push(message.clone());
        Ok(())
    }

    #[cfg(feature = "sqlx")]
    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The message, if it is the only one: it is then written together with the record.
    pub(super) fn only_one(&self) -> Option<&Message> {
        match self.messages.as_slice() {
            [message] => Some(message),
            [] | [_, _, ..] => None,
        }
    }

    pub(super) async fn prepare(&self, link: &Link<'_>) -> Result<(), DriverError> {
        match self.messages.as_slice() {
            [] => Ok(()),
            [_, ..] => link.prepare(&link.sql().tx.messages).await,
        }
    }

    pub(super) async fn send(&self, link: &Link<'_>, id: RecordId) -> Result<(), DriverError> {
        let tx = &link.sql().tx;
        match self.messages.as_slice() {
            [] => Ok(()),
            messages => {
                let given = Columns::new(messages);
                link.query(&tx.messages, &given.parameters(&Id(id))).await.map(drop)
            }
        }
    }
}

/// Messages as they are written, one array for each column.
pub(in crate::postgres) struct Columns<'a> {
    tenants: Vec<&'a str>,
    keys: Vec<&'a str>,
    destinations: Vec<&'a str>,
    types: Vec<&'a str>,
    payloads: Vec<&'a [u8]>,
    orders: Vec<Option<&'a str>>,
    delays: Vec<i64>,
    answers: Vec<Option<Vec<u8>>>,
}

impl<'a> Columns<'a> {
    pub(in crate::postgres) fn new(messages: &'a [Message]) -> Self {
        let all = |of: fn(&'a Message) -> &'a str| messages.iter().map(of).collect::<Vec<_>>();
        Self {
            tenants: all(|message| message.tenant().as_str()),
            keys: all(Message::derived_key),
            destinations: all(Message::destination),
            types: all(Message::payload_type),
            payloads: messages.iter().map(|message| &message.payload()[..]).collect(),
            orders: messages.iter().map(Message::ordering_key).collect(),
            delays: messages.iter().map(|message| whole_millis(message.delay())).collect(),
            answers: messages.iter().map(|one| one.answers().map(encode_answers)).collect(),
        }
    }

    pub(in crate::postgres) fn parameters<'p>(&'p self, id: &'p Id) -> [&'p (dyn ToSql + Sync); 9] {
        [
            id,
            &self.tenants,
            &self.keys,
            &self.destinations,
            &self.types,
            &self.payloads,
            &self.orders,
            &self.delays,
            &self.answers,
        ]
    }
}
