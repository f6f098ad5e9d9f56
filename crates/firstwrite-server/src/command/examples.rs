//! Every example that a help text shows must be taken by the command line as it is written.

use clap::{CommandFactory as _, Parser as _};

use super::Arguments;

/// The words of an example, as a shell would split it: single quotes, and nothing else that examples use.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    for letter in line.chars() {
        match letter {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            letter if letter.is_whitespace() && !is_quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    assert!(!is_quoted, "a quote is open: {line}");
    words
}

/// The examples of a help text: what begins with the program's name, up to an explanation, a redirection or `&`.
fn examples(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| line.starts_with("firstwrite "));
    let command = |line: &str| {
        // What a backslash joins stands behind many blanks; an explanation does not begin with a flag.
        let pieces: Vec<&str> =
            line.split("   ").map(str::trim).filter(|one| !one.is_empty()).collect();
        let is_more = |piece: &&&str| piece.starts_with('-');
        let mut kept = vec![pieces[0]];
        kept.extend(pieces[1..].iter().take_while(is_more).copied());
        let command = kept.join(" ");
        command.split(['>', '&']).next().unwrap_or_default().trim().to_owned()
    };
    lines.map(command).collect()
}

fn walk(command: &clap::Command, seen: &mut Vec<String>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    seen.extend(examples(&text));
    for child in command.get_subcommands() {
        walk(child, seen);
    }
}

#[test]
fn every_example_is_taken_as_it_is_written() {
    let mut seen = Vec::new();
    walk(&Arguments::command(), &mut seen);
    assert!(seen.len() > 40, "most of them were not found: {seen:#?}");
    for example in seen {
        if let Err(error) = Arguments::try_parse_from(words(&example)) {
            panic!("{example}\n{error}");
        }
    }
}

#[test]
fn an_example_ends_where_its_explanation_begins() {
    let text = "Examples:\n  firstwrite demo &\n  firstwrite stores redis         one of them\n  \
                firstwrite keys show a b \\\n      --body 'x y'\nfirstwrite x > y\nnot firstwrite\n";
    let wanted = [
        "firstwrite demo",
        "firstwrite stores redis",
        "firstwrite keys show a b --body 'x y'",
        "firstwrite x",
    ];
    assert_eq!(examples(text), wanted);
    assert_eq!(words("a  'b c' '' d"), ["a", "b c", "", "d"]);
}

/// A container that is created anew must find the store of the one before, or used keys run again.
#[test]
fn a_container_keeps_its_store_in_a_volume() {
    let file = include_str!("../../../../deploy/container/Containerfile");
    let comment: String =
        file.lines().filter_map(|line| line.strip_prefix('#')).collect::<Vec<_>>().join("\n");
    let joined = comment.replace("\\\n", " ");
    let command = joined.lines().find_map(|line| line.trim().strip_prefix("docker run "));
    let words = words(command.expect("the file says how to run it"));
    let folder = file.lines().find_map(|line| line.strip_prefix("WORKDIR /var"));
    let folder = format!("/var{}", folder.expect("the store stands in the working directory"));
    let volume = words.iter().skip_while(|word| *word != "-v").nth(1).expect("there is a volume");
    assert_eq!(volume.split_once(':'), Some(("firstwrite", folder.as_str())));
    let start = words.iter().skip_while(|word| *word != "firstwrite");
    if let Err(error) = Arguments::try_parse_from(start) {
        panic!("{joined}\n{error}");
    }
}

/// Commands that `deploy/` starts: units and services. That they start is a test from outside.
#[test]
fn every_deployed_command_is_taken_as_it_is_written() {
    let units = [
        include_str!("../../../../deploy/systemd/firstwrite-gateway.service"),
        include_str!("../../../../deploy/systemd/firstwrite-worker.service"),
    ];
    let started = units.map(|unit| {
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
        words(line.expect("a unit starts something"))
    });
    let compose = include_str!("../../../../deploy/container/compose.yaml");
    let commands = compose.lines().filter_map(|line| line.trim().strip_prefix("command: "));
    let services: Vec<Vec<String>> = commands
        .map(|command| {
            let mut words = vec!["firstwrite".to_owned()];
            words.extend(serde_json::from_str::<Vec<String>>(command).expect("a list of words"));
            words
        })
        .collect();
    assert_eq!(services.len(), 2, "a gateway and a worker");
    for words in started.into_iter().chain(services) {
        if let Err(error) = Arguments::try_parse_from(&words) {
            panic!("{words:?}\n{error}");
        }
    }
    let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/container/firstwrite.toml");
    let read = crate::config::File::read(std::path::Path::new(settings));
    assert!(read.is_ok(), "{:?}", read.err().map(|error| error.to_string()));
}
