//! Messages of a handler, kept until they are written with its outcome.

use std::collections::HashSet;

use firstwrite_core::{Message, RecordId, StoreError, Tenant};
use tokio_postgres::types::ToSql;

use crate::postgres::columns::Id;
use crate::postgres::fault::{Trouble, unsupported};
use crate::postgres::link::Link;
use crate::postgres::profiles::whole_millis;

/// A handler that has more to say should say it in one message.
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

    pub(super) async fn prepare(&self, link: &Link<'_>) -> Result<(), Trouble> {
        match self.messages.as_slice() {
            [] => Ok(()),
            [_, ..] => link.prepare(&link.sql().tx.messages).await,
        }
    }

    pub(super) async fn send(&self, link: &Link<'_>, id: RecordId) -> Result<(), Trouble> {
        let tx = &link.sql().tx;
        match self.messages.as_slice() {
            [] => Ok(()),
            messages => {
                let all = |of: fn(&Message) -> &str| messages.iter().map(of).collect::<Vec<_>>();
                let tenants = all(|message| message.tenant().as_str());
                let keys = all(Message::derived_key);
                let (destinations, types) = (all(Message::destination), all(Message::payload_type));
                let payloads: Vec<&[u8]> =
                    messages.iter().map(|message| &message.payload()[..]).collect();
                let orders: Vec<Option<&str>> =
                    messages.iter().map(Message::ordering_key).collect();
                let delays: Vec<i64> =
                    messages.iter().map(|message| whole_millis(message.delay())).collect();
                let given: [&(dyn ToSql + Sync); 8] =
                    [&Id(id), &tenants, &keys, &destinations, &types, &payloads, &orders, &delays];
                link.query(&tx.messages, &given).await.map(drop)
            }
        }
    }
}
