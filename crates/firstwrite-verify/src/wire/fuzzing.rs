//! Answers of the API that is asked, for [`crate::fuzzing`].

use super::answer::Answer;

/// The head of an answer, and how the end of its body is told.
pub(crate) fn answer(bytes: &[u8]) {
    let Ok(Some((answer, length))) = Answer::parse_head(bytes) else { return };
    assert!(length <= bytes.len(), "a head longer than what came");
    assert!(answer.headers.iter().all(|(name, _)| *name == name.to_ascii_lowercase()));
    for is_head in [false, true] {
        drop(answer.framing(is_head));
    }
}
