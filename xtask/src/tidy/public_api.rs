//! `cargo xtask public-api`: the public items of the libraries, one line each, kept in `docs/api`.
//!
//! The list is read from the source: an item that is `pub` in a module counts as public, which the lint
//! `unreachable_pub` makes true. Private modules are left out of paths, so that moving a file changes nothing here;
//! so are derived traits. Re-exports of other crates are lines of their own.
#![expect(clippy::wildcard_enum_match_arm, reason = "of Rust's items, most are of no matter here")]

use std::collections::BTreeSet;

use anyhow::Context;
use firstwrite_chaos::args::Args;
use firstwrite_chaos::workspace::Workspace;
use quote::ToTokens;
use syn::{
    Attribute, Fields, File as Source, ImplItem, Item, Meta, TraitItem, Type, UseTree, Visibility,
};

use super::Finding;
use super::files::Tree;

pub(crate) const HELP: &str = "\
Compares the public items of the libraries that people link with the lists in docs/api, as
`cargo xtask tidy` does, so that a change of the API is seen in review.

  --write   writes the lists";

/// The libraries that people link, each with the folder of its sources.
const CRATES: [(&str, &str); 4] = [
    ("firstwrite", "crates/firstwrite/src/"),
    ("firstwrite-client", "clients/rust/src/"),
    ("firstwrite-core", "crates/firstwrite-core/src/"),
    ("firstwrite-store", "crates/firstwrite-store/src/"),
];
/// Modules for tests alone.
const APART: [&str; 3] = ["/tests.rs", "/tests/", "/fuzzing.rs"];

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let writes = args.flag("--write");
    args.finish()?;
    let tree = Tree::read(&workspace.root)?;
    for (name, folder) in CRATES {
        let (page, text) = (page(name), list(&tree, folder).map_err(anyhow::Error::msg)?);
        if writes {
            let path = workspace.root.join(&page);
            std::fs::create_dir_all(path.with_file_name("")).context("making docs/api")?;
            std::fs::write(path, &text).with_context(|| format!("cannot write {page}"))?;
        }
        println!("{page}: {} lines", text.lines().count());
    }
    let findings = if writes { Vec::new() } else { check(&tree) };
    findings.iter().for_each(Finding::print);
    anyhow::ensure!(findings.is_empty(), "the lists are not what the source says");
    Ok(())
}

/// The lists say what the source says.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    const REASON: &str = "a change of the public API is seen in review";
    let findings = CRATES.iter().filter_map(|(name, folder)| {
        let page = page(name);
        let kept = tree.file(&page).map_or("", |file| &file.text);
        match list(tree, folder) {
            Err(problem) => Some(Finding::new(&page, 0, problem, REASON)),
            Ok(text) if text == kept => None,
            Ok(text) => {
                let (new, old): (BTreeSet<_>, BTreeSet<_>) =
                    (text.lines().collect(), kept.lines().collect());
                let (more, less) = (new.difference(&old).next(), old.difference(&new).next());
                let first = match (more, less) {
                    (Some(line), _) => format!("new: {line}"),
                    (None, Some(line)) => format!("gone: {line}"),
                    (None, None) => "another order".to_owned(),
                };
                let advice = format!("cargo xtask public-api --write ({first})");
                Some(Finding::new(&page, 0, advice, REASON))
            }
        }
    });
    findings.collect()
}

fn page(name: &str) -> String {
    format!("docs/api/{name}.txt")
}

/// Lists the public items of a crate, in order; or says which file cannot be read.
fn list(tree: &Tree, folder: &str) -> Result<String, String> {
    let mut lines = Lines::default();
    let mut sources = Vec::new();
    for file in &tree.files {
        let Some(path) = file.path.strip_prefix(folder) else { continue };
        let Some(path) = path.strip_suffix(".rs") else { continue };
        if APART.iter().any(|apart| file.path.contains(apart)) {
            continue;
        }
        let source: Source =
            syn::parse_file(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        let module: Vec<&str> = path.split('/').filter(|part| *part != "lib").collect();
        let module = module.join("::");
        for item in &source.items {
            if let Item::Mod(inner) = item
                && is_public(&inner.vis)
            {
                lines.modules.insert(joined(&module, &inner.ident.to_string()));
            }
        }
        sources.push((module, source.items));
    }
    for (module, items) in &sources {
        lines.items(module, items);
    }
    Ok(lines.finish())
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// Lines of a list; those of trait implementations wait until it is known which types are public.
#[derive(Default)]
struct Lines {
    /// Modules that are public.
    modules: BTreeSet<String>,
    found: BTreeSet<String>,
    types: BTreeSet<String>,
    impls: Vec<(String, String)>,
}

impl Lines {
    fn items(&mut self, module: &str, items: &[Item]) {
        let (mut path, mut shown) = (String::new(), String::new());
        for part in module.split("::").filter(|part| !part.is_empty()) {
            path = joined(&path, part);
            if self.modules.contains(&path) {
                shown = format!("{shown}{part}::");
            }
        }
        for item in items {
            self.item(&shown, item);
        }
    }

    fn item(&mut self, module: &str, item: &Item) {
        match item {
            Item::Mod(found) if !is_apart(&found.attrs) => {
                if is_public(&found.vis) {
                    self.add(module, &format!("mod {}", found.ident), &found.attrs);
                }
                for item in found.content.iter().flat_map(|(_, items)| items) {
                    self.item(module, item);
                }
            }
            Item::Use(found) if is_public(&found.vis) && !is_apart(&found.attrs) => {
                self.re_exports(module, "", &found.tree);
            }
            Item::Fn(found) if is_public(&found.vis) => {
                self.add(module, &text(&found.sig), &found.attrs);
            }
            Item::Const(found) if is_public(&found.vis) => {
                let line = format!("const {}: {}", found.ident, text(&found.ty));
                self.add(module, &line, &found.attrs);
            }
            Item::Type(found) if is_public(&found.vis) => {
                let line =
                    format!("type {}{} = {}", found.ident, text(&found.generics), text(&found.ty));
                self.add(module, &line, &found.attrs);
            }
            Item::Struct(found) if is_public(&found.vis) && !is_apart(&found.attrs) => {
                let name = found.ident.to_string();
                self.add(module, &format!("struct {name}{}", text(&found.generics)), &found.attrs);
                self.fields(&format!("{module}{name}"), &found.fields, true);
                self.types.insert(name);
            }
            Item::Enum(found) if is_public(&found.vis) && !is_apart(&found.attrs) => {
                let name = found.ident.to_string();
                self.add(module, &format!("enum {name}{}", text(&found.generics)), &found.attrs);
                for variant in &found.variants {
                    let path = format!("{module}{name}::{}", variant.ident);
                    self.add("", &path, &variant.attrs);
                    self.fields(&path, &variant.fields, false);
                }
                self.types.insert(name);
            }
            Item::Trait(found) if is_public(&found.vis) && !is_apart(&found.attrs) => {
                let (name, bounds) = (&found.ident, text(&found.supertraits));
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                let line = format!("trait {name}{}{bounds}", text(&found.generics));
                self.add(module, &line, &found.attrs);
                for item in &found.items {
                    self.trait_item(&format!("{module}{name}::"), item);
                }
            }
            Item::Impl(found) if !is_apart(&found.attrs) => self.implementation(module, found),
            _ => {}
        }
    }

    fn implementation(&mut self, module: &str, found: &syn::ItemImpl) {
        let own = type_name(&found.self_ty);
        if let Some((_, path, _)) = &found.trait_ {
            let line = format!("{module}impl {} for {}", text(path), text(&found.self_ty));
            self.impls.push((own, line));
            return;
        }
        for item in &found.items {
            match item {
                ImplItem::Fn(item) if is_public(&item.vis) => {
                    let line = format!("{module}{own}::{}", text(&item.sig));
                    if !is_apart(&item.attrs) {
                        self.impls.push((own.clone(), line));
                    }
                }
                ImplItem::Const(item) if is_public(&item.vis) => {
                    let line = format!("{module}{own}::const {}: {}", item.ident, text(&item.ty));
                    self.impls.push((own.clone(), line));
                }
                _ => {}
            }
        }
    }

    fn trait_item(&mut self, path: &str, item: &TraitItem) {
        match item {
            TraitItem::Fn(item) => {
                let default = if item.default.is_some() { " { .. }" } else { "" };
                self.add(path, &format!("{}{default}", text(&item.sig)), &item.attrs);
            }
            TraitItem::Type(item) => {
                let line = format!("type {}: {}", item.ident, text(&item.bounds));
                self.add(path, &line, &item.attrs);
            }
            TraitItem::Const(item) => {
                let line = format!("const {}: {}", item.ident, text(&item.ty));
                self.add(path, &line, &item.attrs);
            }
            _ => {}
        }
    }

    fn fields(&mut self, path: &str, fields: &Fields, are_marked: bool) {
        for (number, field) in fields.iter().enumerate() {
            if !are_marked || is_public(&field.vis) {
                let name = field.ident.as_ref().map_or(number.to_string(), ToString::to_string);
                self.add("", &format!("{path}.{name}: {}", text(&field.ty)), &field.attrs);
            }
        }
    }

    fn re_exports(&mut self, module: &str, path: &str, tree: &UseTree) {
        match tree {
            UseTree::Path(inner) => {
                self.re_exports(module, &format!("{path}{}::", inner.ident), &inner.tree);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|inner| self.re_exports(module, path, inner));
            }
            UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_)
                if path.starts_with("firstwrite_") || path.is_empty() =>
            {
                self.found.insert(format!("{module}use {path}{}", text(tree)));
            }
            UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => {}
        }
    }

    fn add(&mut self, path: &str, line: &str, attributes: &[Attribute]) {
        if is_apart(attributes) {
            return;
        }
        let is_open = attributes.iter().any(|one| one.path().is_ident("non_exhaustive"));
        let mark = if is_open { " #[non_exhaustive]" } else { "" };
        self.found.insert(format!("{path}{line}{mark}"));
    }

    fn finish(mut self) -> String {
        let impls = self.impls.into_iter().filter(|(own, _)| self.types.contains(own));
        self.found.extend(impls.map(|(_, line)| line));
        self.found.iter().flat_map(|line| [line, "\n"]).collect()
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// True for items that are hidden from the docs or compiled for tests alone.
fn is_apart(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|one| match &one.meta {
        Meta::List(list) if list.path.is_ident("doc") => list.tokens.to_string() == "hidden",
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition == "doctest" || condition.contains("(test")
        }
        _ => false,
    })
}

/// Name of a type without its path and parameters.
fn type_name(found: &Type) -> String {
    match found {
        Type::Path(path) => {
            path.path.segments.last().map_or(String::new(), |one| one.ident.to_string())
        }
        _ => text(found),
    }
}

/// Spaces that the printed tokens have and rustfmt does not.
const SPACES: &str = " :: |::,:: |::, <|<,< |<, >|>, :|:,& |&,( |(, )|), (|(,-> | -> ,->| -> ,  | ";

/// Source text on one line, spaced about as rustfmt does.
fn text(found: &impl ToTokens) -> String {
    let mut line = found.to_token_stream().to_string();
    for (from, to) in SPACES.split(',').filter_map(|pair| pair.split_once('|')) {
        line = line.replace(from, to);
    }
    line.replace(" ,", ",").replace(",)", ")").replace(" ;", ";").replace("  ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_items_are_listed_and_others_are_not() {
        let source = "
            pub use firstwrite_core::{One, Two as Three};
            pub use inner::Choice;
            mod inner;
            #[non_exhaustive]
            pub struct Open<T> { pub field: Vec<T>, hidden: u8 }
            pub(crate) struct Own;
            impl<T> Open<T> { pub fn get(&self, at: usize) -> Option<&T> { None } fn own(&self) {} }
            impl Own { pub fn unseen(&self) {} }
            impl<T> Clone for Open<T> { fn clone(&self) -> Self { todo!() } }
            pub enum Choice { Yes, No(u8) }
            pub trait Reads: Send { fn read(&self) -> u8; fn peek(&self) -> u8 { 0 } }
            #[doc(hidden)] pub fn secret() {}
            #[cfg(test)] mod tests { pub fn never() {} }
        ";
        let tree = Tree::of(&[("crates/firstwrite/src/lib.rs", source)]);
        let expected = "\
Choice::No
Choice::No.0: u8
Choice::Yes
Open.field: Vec<T>
Open::fn get(&self, at: usize) -> Option<&T>
Reads::fn peek(&self) -> u8 { .. }
Reads::fn read(&self) -> u8
enum Choice
impl Clone for Open<T>
struct Open<T> #[non_exhaustive]
trait Reads: Send
use firstwrite_core::One
use firstwrite_core::Two as Three
";
        assert_eq!(list(&tree, "crates/firstwrite/src/").unwrap(), expected);
        assert_eq!(check(&tree).len(), 1, "it is not what is kept");
    }
}
