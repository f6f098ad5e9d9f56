//! One sender for each intent in this process: whoever comes second waits, and gets the end of the first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// The right to send an intent, for one task at a time.
type Turn = futures_util::lock::Mutex<()>;

/// Turns by the name of the intent.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    turns: Mutex<HashMap<String, Weak<Turn>>>,
}

/// Names that nobody waits for any more are dropped when there are so many.
const NAMES_MANY: usize = 256;

impl Locks {
    pub(crate) fn of(&self, name: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock().expect("looking up a name does not panic");
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() >= NAMES_MANY {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::new(Turn::new(()));
        turns.insert(name.to_owned(), Arc::downgrade(&turn));
        turn
    }
}
