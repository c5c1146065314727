//! No circles between the modules of a crate: no files that need each other, and no folders whose arrows point both ways.
//! Circles that are still there are counted in the crate's manifest, under `package.metadata.circles`: `files`, and
//! `folders` for those that no circle of files makes. The numbers may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::circles::circles;
use super::resolve::{Arrows, Tree};

/// Kinds of targets that are shipped; what tests, benchmarks and examples are made of is left out.
const KINDS: [&str; 7] = ["lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro", "bin"];

/// Checks each package. Returns how many files there are, how many are in circles, and what is wrong.
pub fn check(packages: &[Value], shown: &[String]) -> Result<(usize, usize, Vec<String>), String> {
    let (mut files, mut left, mut wrong) = (0, 0, Vec::new());
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let mut found = Circles::default();
        for target in package["targets"].as_array().into_iter().flatten() {
            let kinds = target["kind"].as_array().into_iter().flatten();
            if !kinds.filter_map(Value::as_str).any(|kind| KINDS.contains(&kind)) {
                continue;
            }
            let root = Path::new(target["src_path"].as_str().unwrap_or_default());
            let tree = Tree::read(root)?;
            files += tree.files.len();
            found.add(&tree, root.parent().unwrap_or(root));
        }
        left += found.files;
        if shown.iter().any(|wanted| wanted == "*" || wanted == name) && !found.lines.is_empty() {
            println!("{name}:\n{}", found.lines.join("\n"));
        }
        wrong.extend(verdict(name, &package["metadata"]["circles"], &found));
    }
    Ok((files, left, wrong))
}

/// A crate's circles may shrink, and the numbers in its manifest with them.
fn verdict(name: &str, known: &Value, found: &Circles) -> Option<String> {
    let known = |what: &str| known[what].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let (files, folders) = (known("files"), known("folders"));
    if (found.files, found.folders) == (files, folders) {
        return None;
    }
    let Circles { files: now, folders: folders_now, .. } = found;
    let counts = format!("{now} files and {folders_now} folders of {name} are in circles");
    Some(match now + folders_now <= files + folders {
        true => format!(
            "{counts}, fewer than the {files} and {folders} in its Cargo.toml: lower package.metadata.circles there"
        ),
        false => format!("{counts}; known are {files} and {folders}; `cargo xtask deps {name}` shows them"),
    })
}

/// The circles of a crate.
#[derive(Default)]
struct Circles {
    /// Files in circles.
    files: usize,
    /// Folders, and files beside them, in circles that no circle of files makes.
    folders: usize,
    /// The circles in words, a line each.
    lines: Vec<String>,
}

impl Circles {
    fn add(&mut self, tree: &Tree, folder: &Path) {
        let arrows = tree.arrows();
        let between: BTreeSet<(usize, usize)> = arrows.keys().copied().collect();
        let shown =
            |file: usize| tree.files[file].strip_prefix(folder).unwrap_or(&tree.files[file]).display();
        for circle in circles(tree.files.len(), &between) {
            self.files += circle.len();
            self.lines.push(format!("  circle of {} files", circle.len()));
            for ((from, to), named) in
                arrows.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to))
            {
                let path = named.path.join("::");
                self.lines.push(format!(
                    "    {} -> {}  (line {}: {path})",
                    shown(*from),
                    shown(*to),
                    named.line
                ));
            }
        }
        for circle in folder_circles(tree, &arrows) {
            self.folders += circle.more;
            let inside = if circle.within.is_empty() { "the root".to_owned() } else { circle.within };
            self.lines.push(format!("  circle of modules in {inside}: {}", circle.members.join(", ")));
            for (from, to) in circle.arrows {
                let named = &arrows[&(from, to)];
                let path = named.path.join("::");
                self.lines.push(format!(
                    "    {} -> {}  (line {}: {path})",
                    shown(from),
                    shown(to),
                    named.line
                ));
            }
        }
    }
}

/// A circle between the modules of one folder, each taken with everything below it.
struct FolderCircle {
    within: String,
    members: Vec<String>,
    /// Members through which no circle of files goes.
    more: usize,
    arrows: Vec<(usize, usize)>,
}

/// Which module of a folder needs which, and the files that make it so.
type Needs<'a> = BTreeMap<(&'a str, &'a str), Vec<(usize, usize)>>;

fn folder_circles(tree: &Tree, arrows: &Arrows) -> Vec<FolderCircle> {
    let mut folders: BTreeMap<&[String], Needs<'_>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        let (a, b) = (&tree.names[*from], &tree.names[*to]);
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        if let (Some(x), Some(y)) = (a.get(common), b.get(common)) {
            folders.entry(&a[..common]).or_default().entry((x, y)).or_default().push((*from, *to));
        }
    }
    let between: BTreeSet<(usize, usize)> = arrows.keys().copied().collect();
    let of_files = circles(tree.files.len(), &between);
    let mut found = Vec::new();
    for (within, needs) in folders {
        let names: BTreeSet<&str> = needs.keys().flat_map(|(from, to)| [*from, *to]).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let at = |name: &str| names.iter().position(|other| *other == name).unwrap_or_default();
        let edges = needs.keys().map(|(from, to)| (at(from), at(to))).collect();
        for circle in circles(names.len(), &edges) {
            let inside = |name: &str| circle.contains(&at(name));
            let edges = needs.iter().filter(|((from, to), _)| inside(from) && inside(to));
            let arrows: Vec<(usize, usize)> = edges.flat_map(|(_, files)| files.iter().copied()).collect();
            // Those that a circle of files goes through count there.
            let in_files = |name: &str| {
                let mut files = of_files.iter().flatten().map(|file| &tree.names[*file]);
                files.any(|file| {
                    file.starts_with(within) && file.get(within.len()).is_some_and(|member| member == name)
                })
            };
            let more = circle.iter().filter(|node| !in_files(names[**node])).count();
            if more > 0 {
                let members = circle.iter().map(|node| names[*node].to_owned()).collect();
                found.push(FolderCircle { within: within.join("::"), members, more, arrows });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate whose files have these texts.
    fn of(files: &[(&str, &str)]) -> Circles {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, text).expect("written");
        }
        let tree = Tree::read(&folder.path().join("lib.rs")).expect("readable");
        let mut circles = Circles::default();
        circles.add(&tree, folder.path());
        circles
    }

    fn counts(files: &[(&str, &str)]) -> (usize, usize) {
        let Circles { files, folders, .. } = of(files);
        (files, folders)
    }

    const LIB: (&str, &str) = ("lib.rs", "mod a; mod b;");

    #[test]
    fn imports_expressions_and_macro_arguments_make_circles() {
        for a in [
            "use super::b::B;",
            "use crate::{b::{self, B}};",
            "fn f() { crate::b::g(1) }",
            "fn f() { p!(super::b::g()) }",
        ] {
            assert_eq!(
                counts(&[LIB, ("a.rs", a), ("b.rs", "use crate::a::f; pub struct B;")]),
                (2, 0),
                "{a}"
            );
        }
    }

    #[test]
    fn tests_comments_and_strings_make_none() {
        for a in [
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(all(test, unix))] use crate::b::B;",
            "// crate::b::B\nconst X: &str = \"crate::b::B\";",
        ] {
            assert_eq!(counts(&[LIB, ("a.rs", a), ("b.rs", "use crate::a::f;")]), (0, 0), "{a}");
        }
    }

    #[test]
    fn a_name_that_is_handed_on_counts_for_the_file_that_defines_it() {
        let lib = ("lib.rs", "mod a; mod b; pub use b::B;");
        assert_eq!(
            counts(&[lib, ("a.rs", "use crate::B; pub struct A;"), ("b.rs", "pub struct B;")]),
            (0, 0)
        );
        assert_eq!(
            counts(&[lib, ("a.rs", "use crate::B; pub struct A;"), ("b.rs", "use crate::a::A; struct B;")]),
            (2, 0)
        );
        let all = ("lib.rs", "mod a; mod b; pub use b::*; fn own() {}");
        assert_eq!(
            counts(&[all, ("a.rs", "use crate::B;"), ("b.rs", "pub struct B; fn f() { crate::own() }")]),
            (0, 0)
        );
    }

    #[test]
    fn a_child_that_uses_what_its_user_defines_makes_a_circle() {
        let a = ("a/mod.rs", "mod c; pub struct A; fn f() { c::g() }");
        let c = ("a/c.rs", "use super::A; pub fn g() {}");
        assert_eq!(counts(&[("lib.rs", "mod a;"), a, c]), (2, 0));
        assert_eq!(counts(&[("lib.rs", "mod a;"), ("a/mod.rs", "mod c; pub struct A;"), c]), (0, 0));
    }

    #[test]
    fn folders_point_one_way_though_no_files_make_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "pub mod c; pub mod d;"),
            ("a/c.rs", "use crate::b::B;"),
            ("a/d.rs", "pub struct D;"),
            ("b.rs", "use crate::a::d::D; pub struct B;"),
        ];
        let circles = of(&files);
        assert_eq!((circles.files, circles.folders), (0, 2));
        assert!(
            circles.lines.iter().any(|line| line.contains("a/c.rs -> b.rs  (line 1: crate::b::B)")),
            "{:?}",
            circles.lines
        );
    }

    #[test]
    fn numbers_in_a_manifest_only_shrink() {
        let known = serde_json::json!({ "files": 3 });
        let verdict = |files| verdict("x", &known, &Circles { files, ..Circles::default() });
        assert_eq!(verdict(3), None);
        assert!(verdict(2).is_some_and(|message| message.contains("lower")));
        assert!(verdict(4).is_some_and(|message| message.contains("shows them")));
    }
}
