//! `cargo xtask public-api`: the public items of the libraries, one line each, kept in `docs/api`.
//!
//! The list is read from the source. An item stands under the path by which users name it: its own, if its modules
//! are public, else that of the shortest re-export; an item without such a path is left out. So moving a file changes
//! nothing here. Derived traits are left out. Re-exports of other crates are lines of their own.
#![expect(clippy::wildcard_enum_match_arm, reason = "of Rust's items, most are of no matter here")]

use std::collections::{BTreeMap, BTreeSet};

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
const CRATES: [(&str, &str); 6] = [
    ("firstwrite", "crates/firstwrite/src/"),
    ("firstwrite-client", "clients/rust/src/"),
    ("firstwrite-core", "crates/firstwrite-core/src/"),
    ("firstwrite-store", "crates/firstwrite-store/src/"),
    ("firstwrite-testkit", "crates/firstwrite-testkit/src/"),
    ("firstwrite-wrappers", "crates/firstwrite-wrappers/src/"),
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
        sources.push((module.join("::"), source.items));
    }
    let mut names = Names::default();
    for (module, items) in &sources {
        names.modules(module, items);
    }
    for (module, items) in &sources {
        names.re_exports(module, items);
    }
    let mut lines =
        Lines { names, found: BTreeSet::new(), types: BTreeMap::new(), impls: Vec::new() };
    for (module, items) in &sources {
        for item in items {
            lines.item(module, item);
        }
    }
    Ok(lines.finish())
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// The path by which users reach an item, ready to stand before its name, and the name.
type PublicName = (String, String);

/// The visibility, name and attributes of an item.
type Head<'a> = (&'a Visibility, &'a syn::Ident, &'a [Attribute]);

/// The paths by which users can name items.
#[derive(Default)]
struct Names {
    /// Every module, with true for one that is declared `pub` and not hidden.
    modules: BTreeMap<String, bool>,
    /// Re-exports within the crate: what is re-exported, the module that does, and the name there.
    re_exports: Vec<(String, String, String)>,
}

impl Names {
    /// No chain of re-exports is longer.
    const CHAIN_MAX: usize = 8;

    fn modules(&mut self, module: &str, items: &[Item]) {
        for item in items {
            let Item::Mod(inner) = item else { continue };
            let path = joined(module, &inner.ident.to_string());
            let is_shown = is_public(&inner.vis) && !is_apart(&inner.attrs);
            self.modules.insert(path.clone(), is_shown);
            if let Some((_, items)) = &inner.content {
                self.modules(&path, items);
            }
        }
    }

    fn re_exports(&mut self, module: &str, items: &[Item]) {
        for item in items {
            match item {
                Item::Use(found) if is_public(&found.vis) && !is_apart(&found.attrs) => {
                    self.re_export(module, module, &found.tree);
                }
                Item::Mod(inner) => {
                    if let Some((_, items)) = &inner.content {
                        self.re_exports(&joined(module, &inner.ident.to_string()), items);
                    }
                }
                _ => {}
            }
        }
    }

    /// Notes the re-exports that `module` makes of what `tree` names in `path`.
    fn re_export(&mut self, module: &str, path: &str, tree: &UseTree) {
        let parent =
            |path: &str| path.rsplit_once("::").map_or("", |(parent, _)| parent).to_owned();
        match tree {
            UseTree::Path(inner) => {
                let path = match inner.ident.to_string().as_str() {
                    "crate" => String::new(),
                    "self" => path.to_owned(),
                    "super" => parent(path),
                    name => joined(path, name),
                };
                self.re_export(module, &path, &inner.tree);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|inner| self.re_export(module, path, inner));
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.re_exports.push((joined(path, &name), module.to_owned(), name));
            }
            UseTree::Rename(found) => {
                let (from, to) = (found.ident.to_string(), found.rename.to_string());
                self.re_exports.push((joined(path, &from), module.to_owned(), to));
            }
            UseTree::Glob(_) => {
                self.re_exports.push((joined(path, "*"), module.to_owned(), "*".to_owned()));
            }
        }
    }

    fn is_shown(&self, module: &str) -> bool {
        let ends = module.match_indices("::").map(|(at, _)| at).chain([module.len()]);
        module.is_empty()
            || ends.into_iter().all(|end| self.modules.get(&module[..end]) == Some(&true))
    }

    /// Returns how users name an item of `module`, if they can.
    fn public(&self, module: &str, name: &str) -> Option<PublicName> {
        self.reached(module, name, Self::CHAIN_MAX)
    }

    fn reached(&self, module: &str, name: &str, chain_max: usize) -> Option<PublicName> {
        if self.is_shown(module) {
            let prefix = if module.is_empty() { String::new() } else { format!("{module}::") };
            return Some((prefix, name.to_owned()));
        }
        let chain_max = chain_max.checked_sub(1)?;
        let (plain, glob) = (joined(module, name), joined(module, "*"));
        let ways = self.re_exports.iter().filter_map(|(from, to, as_name)| {
            let as_name = if *from == glob { name } else { as_name };
            let is_way = *from == plain || *from == glob;
            is_way.then(|| self.reached(to, as_name, chain_max)).flatten()
        });
        ways.min_by_key(|(prefix, name)| (prefix.matches("::").count(), format!("{prefix}{name}")))
    }
}

type TypesByName = BTreeMap<String, Vec<(String, PublicName)>>;

/// Lines of a list; those of implementations wait until it is known which types are public.
struct Lines {
    names: Names,
    found: BTreeSet<String>,
    /// Public types, by name: the module that defines each, and its path and name for users.
    types: TypesByName,
    impls: Vec<Implementation>,
}

/// A line of an implementation, without its path.
struct Implementation {
    /// Module that has it.
    module: String,
    /// Name of its type.
    own: String,
    line: String,
    /// True for a trait's.
    is_trait: bool,
}

impl Lines {
    fn item(&mut self, module: &str, item: &Item) {
        match item {
            Item::Mod(found) if !is_apart(&found.attrs) => {
                if is_public(&found.vis)
                    && let Some((path, name)) = self.names.public(module, &found.ident.to_string())
                {
                    self.add(&path, &format!("mod {name}"), &found.attrs);
                }
                let inner = joined(module, &found.ident.to_string());
                for item in found.content.iter().flat_map(|(_, items)| items) {
                    self.item(&inner, item);
                }
            }
            Item::Use(found) if is_public(&found.vis) && !is_apart(&found.attrs) => {
                self.re_exports(module, "", &found.tree);
            }
            Item::Impl(found) if !is_apart(&found.attrs) => self.implementation(module, found),
            _ => self.named(module, item),
        }
    }

    /// Adds an item that has a name, under the path by which users reach it.
    fn named(&mut self, module: &str, item: &Item) {
        let Some((visibility, own, attributes)) = head(item) else { return };
        if !is_public(visibility) || is_apart(attributes) {
            return;
        }
        let own = own.to_string();
        let Some((path, name)) = self.names.public(module, &own) else { return };
        match item {
            Item::Fn(found) => {
                let signature = text(&found.sig);
                let line = signature.replacen(&format!("fn {own}"), &format!("fn {name}"), 1);
                self.add(&path, &line, attributes);
            }
            Item::Const(found) => {
                self.add(&path, &format!("const {name}: {}", text(&found.ty)), attributes);
            }
            Item::Type(found) => {
                let line = format!("type {name}{} = {}", text(&found.generics), text(&found.ty));
                self.add(&path, &line, attributes);
            }
            Item::Struct(found) => {
                self.add(&path, &format!("struct {name}{}", text(&found.generics)), attributes);
                self.fields(&format!("{path}{name}"), &found.fields, true);
                self.types.entry(own).or_default().push((module.to_owned(), (path, name)));
            }
            Item::Enum(found) => {
                self.add(&path, &format!("enum {name}{}", text(&found.generics)), attributes);
                for variant in &found.variants {
                    let path = format!("{path}{name}::{}", variant.ident);
                    self.add("", &path, &variant.attrs);
                    self.fields(&path, &variant.fields, false);
                }
                self.types.entry(own).or_default().push((module.to_owned(), (path, name)));
            }
            Item::Trait(found) => {
                let bounds = text(&found.supertraits);
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                let line = format!("trait {name}{}{bounds}", text(&found.generics));
                self.add(&path, &line, attributes);
                for item in &found.items {
                    self.trait_item(&format!("{path}{name}::"), item);
                }
            }
            _ => {}
        }
    }

    fn implementation(&mut self, module: &str, found: &syn::ItemImpl) {
        let own = type_name(&found.self_ty);
        let mut add = |line: String, is_trait: bool| {
            let (module, own) = (module.to_owned(), own.clone());
            self.impls.push(Implementation { module, own, line, is_trait });
        };
        if let Some((_, path, _)) = &found.trait_ {
            return add(format!("impl {} for {}", text(path), text(&found.self_ty)), true);
        }
        for item in &found.items {
            match item {
                ImplItem::Fn(item) if is_public(&item.vis) && !is_apart(&item.attrs) => {
                    add(text(&item.sig), false);
                }
                ImplItem::Const(item) if is_public(&item.vis) => {
                    add(format!("const {}: {}", item.ident, text(&item.ty)), false);
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
                let name = match tree {
                    UseTree::Name(name) => name.ident.to_string(),
                    UseTree::Rename(name) => name.rename.to_string(),
                    _ => "*".to_owned(),
                };
                if let Some((module, _)) = self.names.public(module, &name) {
                    self.found.insert(format!("{module}use {path}{}", text(tree)));
                }
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
        for Implementation { module, own, line, is_trait } in &self.impls {
            // Of several types of one name, the one whose module is nearest is meant.
            let shared = |other: &str| {
                let parts = module.split("::").zip(other.split("::"));
                parts.take_while(|(one, other)| one == other).count()
            };
            let types = self.types.get(own).into_iter().flatten();
            let Some((_, (path, name))) = types.max_by_key(|(other, _)| shared(other)) else {
                continue;
            };
            let name = if *is_trait { String::new() } else { format!("{name}::") };
            self.found.insert(format!("{path}{name}{line}"));
        }
        self.found.iter().flat_map(|line| [line, "\n"]).collect()
    }
}

/// Returns the visibility, name and attributes of an item that is listed under its name.
fn head(item: &Item) -> Option<Head<'_>> {
    match item {
        Item::Fn(found) => Some((&found.vis, &found.sig.ident, &found.attrs)),
        Item::Const(found) => Some((&found.vis, &found.ident, &found.attrs)),
        Item::Type(found) => Some((&found.vis, &found.ident, &found.attrs)),
        Item::Struct(found) => Some((&found.vis, &found.ident, &found.attrs)),
        Item::Enum(found) => Some((&found.vis, &found.ident, &found.attrs)),
        Item::Trait(found) => Some((&found.vis, &found.ident, &found.attrs)),
        _ => None,
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
            pub use choices::{Choice, three};
            mod choices { pub use firstwrite_core::three; pub enum Choice { Yes, No(u8) } impl Choice { pub fn new() {} } }
            mod inner;
            pub mod doctor { pub use crate::inner::examine as sqlite; }
            #[non_exhaustive]
            pub struct Open<T> { pub field: Vec<T>, hidden: u8 }
            pub(crate) struct Own;
            impl<T> Open<T> { pub fn get(&self, at: usize) -> Option<&T> { None } fn own(&self) {} }
            impl Own { pub fn unseen(&self) {} }
            impl<T> Clone for Open<T> { fn clone(&self) -> Self { todo!() } }
            pub trait Reads: Send { fn read(&self) -> u8; fn peek(&self) -> u8 { 0 } }
            #[doc(hidden)] pub fn secret() {}
            #[cfg(test)] mod tests { pub fn never() {} }
        ";
        let inner =
            "pub use firstwrite_core::unseen; pub enum Form {} pub async fn examine(of: &Open) {}";
        let tree = Tree::of(&[
            ("crates/firstwrite/src/lib.rs", source),
            ("crates/firstwrite/src/inner.rs", inner),
        ]);
        let expected = "\
Choice::No
Choice::No.0: u8
Choice::Yes
Choice::fn new()
Open.field: Vec<T>
Open::fn get(&self, at: usize) -> Option<&T>
Reads::fn peek(&self) -> u8 { .. }
Reads::fn read(&self) -> u8
doctor::async fn sqlite(of: &Open)
enum Choice
impl Clone for Open<T>
mod doctor
struct Open<T> #[non_exhaustive]
trait Reads: Send
use firstwrite_core::One
use firstwrite_core::Two as Three
use firstwrite_core::three
";
        assert_eq!(list(&tree, "crates/firstwrite/src/").unwrap(), expected);
        assert_eq!(check(&tree).len(), 1, "it is not what is kept");
    }
}
