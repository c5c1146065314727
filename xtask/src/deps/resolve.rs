//! The modules of one crate, and which file each path ends in. A re-exported item counts for the file that defines it.

use crate::report::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::{Body, Child, Import, Named, Source};

/// A crate's modules, from one root file.
pub struct Tree {
    modules: Vec<Module>,
    /// The files, in the order they were found; the root is the first.
    pub files: Vec<PathBuf>,
    /// For each file the module path it is: `[]` is the root.
    pub names: Vec<Vec<String>>,
}

struct Module {
    source: Source,
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
}

/// An arrow from a file to another, with a place that makes it.
pub type Arrows = BTreeMap<(usize, usize), Named>;

/// Names that a search has looked at, so that re-exports in a circle end it.
type Seen = BTreeSet<(usize, String)>;

impl Tree {
    /// Reads all modules below a root file, those of tests left out.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree { modules: Vec::new(), files: Vec::new(), names: Vec::new() };
        let folder = root.parent().unwrap_or(Path::new(""));
        tree.file(root, folder, None, Vec::new())?;
        Ok(tree)
    }

    /// Adds a file. Its children's files lie in `folder`.
    fn file(
        &mut self,
        file: &Path,
        folder: &Path,
        parent: Option<usize>,
        name: Vec<String>,
    ) -> Result<usize> {
        let source = Source::read(file)?;
        self.files.push(file.to_owned());
        self.names.push(name.clone());
        self.module(source, self.files.len() - 1, folder, parent, name)
    }

    fn module(
        &mut self,
        mut source: Source,
        file: usize,
        folder: &Path,
        parent: Option<usize>,
        path: Vec<String>,
    ) -> Result<usize> {
        let declared = std::mem::take(&mut source.children);
        let at = self.modules.len();
        self.modules.push(Module { source, file, parent, children: BTreeMap::new() });
        for Child { name, body } in declared {
            let child_path = [path.clone(), vec![name.clone()]].concat();
            let below = folder.join(&name);
            let child = match body {
                Body::Inline(inner) => self.module(inner, file, &below, Some(at), child_path)?,
                Body::File(given) => {
                    let beside = self.files[file].parent().unwrap_or(Path::new("")).to_owned();
                    let (candidates, below) = match &given {
                        Some(given) => {
                            let file = beside.join(given);
                            let folder = file.parent().unwrap_or(Path::new("")).to_owned();
                            (vec![file], folder)
                        }
                        None => (vec![folder.join(format!("{name}.rs")), below.join("mod.rs")], below),
                    };
                    let Some(found) = candidates.iter().find(|file| file.is_file()) else {
                        fail!("no file for module {} in {}", child_path.join("::"), folder.display());
                    };
                    self.file(found, &below, Some(at), child_path)?
                }
            };
            self.modules[at].children.insert(name, child);
        }
        Ok(at)
    }

    /// Which file depends on which.
    pub fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (at, module) in self.modules.iter().enumerate() {
            let source = &module.source;
            // A module's name brings in nothing by itself, and what is only handed on is not used here.
            let used = source.imports.iter().filter(|import| {
                !import.public || import.name != "*" && source.mentioned.contains(&import.name)
            });
            let imported = used.map(|import| (&import.from, import.name == "*"));
            for (named, all) in imported.chain(source.paths.iter().map(|named| (named, true))) {
                let Some(End { module: end, whole }) = self.follow(at, &named.path, &mut Seen::new()) else {
                    continue;
                };
                let to = self.modules[end].file;
                if to != module.file && (all || !whole) {
                    arrows.entry((module.file, to)).or_insert_with(|| named.clone());
                }
            }
        }
        arrows
    }

    /// The module that defines what a path names; `None` outside the crate.
    fn follow(&self, from: usize, path: &[String], seen: &mut Seen) -> Option<End> {
        let first = path.first()?;
        let start = match first.as_str() {
            "crate" => End { module: 0, whole: true },
            "self" => End { module: from, whole: true },
            "super" => End { module: self.modules[from].parent?, whole: true },
            name => self.name(from, name, seen)?,
        };
        path[1..].iter().try_fold(start, |end, segment| {
            if !end.whole {
                return Some(end);
            }
            if segment == "super" {
                return Some(End { module: self.modules[end.module].parent?, whole: true });
            }
            Some(self.name(end.module, segment, seen).unwrap_or(End { module: end.module, whole: false }))
        })
    }

    /// What a name means in a module: a child, an item of its own, or something imported.
    fn name(&self, module: usize, name: &str, seen: &mut Seen) -> Option<End> {
        let Module { source, children, .. } = &self.modules[module];
        if let Some(child) = children.get(name) {
            return Some(End { module: *child, whole: true });
        }
        if source.defined.contains(name) {
            return Some(End { module, whole: false });
        }
        if !seen.insert((module, name.to_owned())) {
            return None;
        }
        let itself = |import: &Import| import.from.path.as_slice() == [name];
        for import in source.imports.iter().filter(|import| import.name == name && !itself(import)) {
            if let Some(end) = self.follow(module, &import.from.path, seen) {
                return Some(end);
            }
        }
        for import in source.imports.iter().filter(|import| import.name == "*") {
            let Some(End { module: other, whole: true }) = self.follow(module, &import.from.path, seen)
            else {
                continue;
            };
            if let Some(end) = self.name(other, name, seen) {
                return Some(end);
            }
        }
        None
    }
}

/// Where a path ends.
struct End {
    module: usize,
    /// Whether it is the module itself and not something in it.
    whole: bool,
}
