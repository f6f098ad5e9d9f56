//! The body of a message: its payload, and the answers that its record gets in the end.
//!
//! A small body is kept in the message's own item. A larger one is in items of its own, written in the same
//! transaction: an item holds 400 KB, and an update of a message should not be billed for its payload.

use bytes::Bytes;
use firstwrite_core::Message;
use firstwrite_core::StoreError;
use firstwrite_core::encoding::{as_i64, decode_answers, encode_answers};
use firstwrite_core::outbox::{MessageContent, MessageNumber};

use super::super::driver_error::corrupt;
use super::super::items::{Item, blob, bytes, integer, key, number, optional, string};
use super::super::link::Link;
use super::message::{CONTENT_TYPE, PAYLOAD_BYTES, number_of};

const BODY: &str = "body";
const BODY_PARTS: &str = "body_parts";

/// Maximum size of a body in the message's own item: with the rest of the message, about one unit of writing.
const IN_MESSAGE_MAX: usize = 500;

/// Leaves room for the keys below the service's 409 600 bytes.
const PART_BYTES_MAX: usize = 400_000;

/// Returns the number of items of its own that the body of a message takes.
pub(super) fn part_count(message: &Message) -> usize {
    let answers = message.answers().map_or(0, |answers| encode_answers(answers).len());
    parts(message.payload().len() + answers)
}

fn parts(byte_count: usize) -> usize {
    if byte_count <= IN_MESSAGE_MAX { 0 } else { byte_count.div_ceil(PART_BYTES_MAX) }
}

/// Puts the body into the message's item, or says there what items it is in, which are returned.
pub(super) fn store(item: &mut Item, given: MessageNumber, message: &Message) -> Vec<Item> {
    let mut body = message.payload().to_vec();
    body.extend(message.answers().map(encode_answers).unwrap_or_default());
    let count = parts(body.len());
    if count == 0 {
        item.insert(BODY.to_owned(), bytes(&body));
        return Vec::new();
    }
    item.insert(BODY_PARTS.to_owned(), number(as_i64(count)));
    let parts = body.chunks(PART_BYTES_MAX).zip(keys(given, count));
    parts
        .map(|(part, mut item)| {
            item.insert(BODY.to_owned(), bytes(part));
            item
        })
        .collect()
}

/// Returns the keys of the items that hold a message's body.
fn keys(number: MessageNumber, count: usize) -> impl Iterator<Item = Item> {
    let shard = format!("b#{:016x}", number.0);
    (0..count)
        .map(move |place| key(&*shard, &u32::try_from(place).unwrap_or(u32::MAX).to_be_bytes()))
}

/// The primary keys of the parts that the body of this message is in.
pub(super) fn keys_of(item: &Item) -> Result<Vec<Item>, StoreError> {
    let count = optional(item, BODY_PARTS, integer)?.unwrap_or_default();
    let count = usize::try_from(count).map_err(|_range| corrupt("a body has no such parts"))?;
    Ok(keys(number_of(item)?, count).collect())
}

/// The body of a message, from wherever it is. It never changes.
pub(super) async fn load(
    link: &Link,
    item: &Item,
    doing: &'static str,
) -> Result<MessageContent, StoreError> {
    let mut body = optional(item, BODY, blob)?.unwrap_or_default().to_vec();
    for key in keys_of(item)? {
        let part = link.item_at(key, doing).await?;
        let part = part.ok_or_else(|| corrupt("a part of a message is missing"))?;
        body.extend_from_slice(blob(&part, BODY)?);
    }
    let payload_bytes = usize::try_from(integer(item, PAYLOAD_BYTES)?).unwrap_or(usize::MAX);
    if payload_bytes > body.len() {
        return Err(corrupt("a message is shorter than its payload"));
    }
    let mut payload = Bytes::from(body);
    let answers = payload.split_off(payload_bytes);
    let answers = Some(answers).filter(|answers| !answers.is_empty());
    let answers = answers.map(|answers| decode_answers(&answers)).transpose();
    let answers = answers?.map(Box::new);
    Ok(MessageContent { content_type: string(item, CONTENT_TYPE)?.to_owned(), payload, answers })
}
