//! The texts of statements: tables of them, the parts that they share, and the schema's name.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::options::SchemaName;

/// A statement and the types of its parameters.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: Arc<str>,
    pub(super) types: Vec<Type>,
}

/// One statement's parameters.
pub(super) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

/// Declares a table of statements, each with its name, its text and the types of its parameters; and, in
/// parentheses, other tables that are fields of it.
macro_rules! statements {
    (
        $(#[$attribute:meta])* $visibility:vis struct $Table:ident($($field:ident: $Part:ident),*) {
            $($name:ident: $text:expr, [$($parameter:ident),*];)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visibility struct $Table {
            $(pub(in crate::postgres) $field: $Part,)*
            $(pub(in crate::postgres) $name: $crate::postgres::sql::Statement,)*
        }

        impl $Table {
            $visibility fn new(schema: &$crate::postgres::options::SchemaName) -> Self {
                use tokio_postgres::types::Type;
                use $crate::postgres::sql::Statement;
                Self {
                    $($field: $Part::new(schema),)*
                    $($name: Statement::new(schema, &$text, &[$(Type::$parameter),*]),)*
                }
            }
        }
    };
}

pub(super) use statements;

/// The end of time, as far as a column holds it.
pub(super) const LATEST: &str = "timestamptz '294276-12-31 23:59:59.999+00'";

/// The lease of a record that was completed at once with an interim outcome: later than any lease, and
/// not the end of time. So it is found with its ending, if there is one, and never lapses.
pub(super) const INTERIM: &str = "timestamptz '294276-01-01 00:00:00+00'";

/// The first `lease_until` of an uncertain record, see `firstwrite.uncertain` in schema.sql: a lease that
/// ends later than any does.
pub(super) const UNCERTAIN: &str = "timestamptz '192102-06-07 10:40:00+00'";

/// Durations of this many milliseconds (285 years) and more end at the end of time. Below it, an
/// interval's arithmetic is exact to the millisecond.
pub(super) const AGES: &str = "9000000000000";

/// Returns the instant `millis` after `at`, both given as SQL.
pub(super) fn later(at: &str, millis: &str) -> String {
    format!(
        "CASE WHEN {millis} >= {AGES} THEN {LATEST} ELSE {at} + {millis} * interval '1 millisecond' END"
    )
}

/// The name of our default schema, which every text of ours uses.
const DEFAULT_SCHEMA: &str = "firstwrite.";

/// Replaces the schema `firstwrite` in `sql` by `schema`.
///
/// The texts name the default schema instead of a placeholder, so that they can be read and run as they
/// are; a name cannot be a parameter, and `search_path` does not survive a transaction pooler. A string
/// literal is left as it is, unless it is nothing but a name, such as `'firstwrite.records'::regclass`.
pub(super) fn in_schema(sql: &str, schema: &SchemaName) -> String {
    let quoted = format!("\"{schema}\".");
    let mut filled = String::with_capacity(sql.len());
    let mut is_literal = false;
    for line in sql.split_inclusive('\n') {
        // The apostrophes of a comment open no literal.
        let end = if is_literal { None } else { line.find("--") };
        let (code, comment) = line.split_at(end.unwrap_or(line.len()));
        for (place, piece) in code.split('\'').enumerate() {
            if place > 0 {
                filled.push('\'');
                is_literal = !is_literal;
            }
            let is_name = |name: &str| name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
            if !is_literal || piece.strip_prefix(DEFAULT_SCHEMA).is_some_and(is_name) {
                push_named(&mut filled, piece, &quoted);
            } else {
                filled.push_str(piece);
            }
        }
        push_named(&mut filled, comment, &quoted);
    }
    filled
}

/// Appends `text` with the default schema's name replaced by `quoted`, where the name is not the end of a longer one.
fn push_named(filled: &mut String, text: &str, quoted: &str) {
    let is_part_of_name = |char: char| char.is_alphanumeric() || "_$.\"".contains(char);
    let mut copied = 0;
    for (place, name) in text.match_indices(DEFAULT_SCHEMA) {
        if text[..place].chars().next_back().is_some_and(is_part_of_name) {
            continue;
        }
        filled.push_str(&text[copied..place]);
        filled.push_str(quoted);
        copied = place + name.len();
    }
    filled.push_str(&text[copied..]);
}

impl Statement {
    pub(super) fn new(schema: &SchemaName, text: &str, types: &[Type]) -> Self {
        Self { text: in_schema(text, schema).into(), types: types.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_string_literals_are_not() {
        let schema = SchemaName::new("keys").unwrap();
        for (sql, filled) in [
            ("SELECT firstwrite.now()", "SELECT \"keys\".now()"),
            ("'firstwrite.records'::regclass", "'\"keys\".records'::regclass"),
            (
                "SELECT 'see firstwrite.records', 'it''s'",
                "SELECT 'see firstwrite.records', 'it''s'",
            ),
            ("SELECT myfirstwrite.x, my_firstwrite.x", "SELECT myfirstwrite.x, my_firstwrite.x"),
            ("(firstwrite.a,firstwrite.b)", "(\"keys\".a,\"keys\".b)"),
            ("-- myfirstwrite.x firstwrite.x", "-- myfirstwrite.x \"keys\".x"),
            ("-- a key's\nfirstwrite.audit", "-- a key's\n\"keys\".audit"),
            ("'two -- lines,\nfirstwrite.x y'", "'two -- lines,\nfirstwrite.x y'"),
        ] {
            assert_eq!(in_schema(sql, &schema), filled);
        }
    }
}
