//! No circles between the modules of a crate: no files that need each other, and no folders whose arrows point both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::resolve::Tree;
use crate::report::Result;

/// Kinds of targets that are shipped; what tests, benchmarks and examples are made of is left out.
const KINDS: [&str; 7] = ["lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro", "bin"];

/// Crates whose circles are about to be broken.
const KNOWN: [&str; 1] = ["dat-shm"];

/// Checks each package. Returns how many files there are, and the arrows of each circle.
pub fn check(packages: &[Value]) -> Result<(usize, Vec<String>)> {
    let (mut files, mut wrong) = (0, Vec::new());
    for package in packages {
        for target in package["targets"].as_array().into_iter().flatten() {
            let kinds = target["kind"].as_array().into_iter().flatten();
            if kinds.filter_map(Value::as_str).any(|kind| KINDS.contains(&kind)) {
                let root = Path::new(target["src_path"].as_str().unwrap_or_default());
                let tree = Tree::read(root)?;
                files += tree.files.len();
                if KNOWN.iter().any(|known| package["name"] == *known) {
                    continue;
                }
                let circles = circles(&tree, root.parent().unwrap_or(root));
                wrong.extend(circles.map(|lines| format!("circles in {}:\n{lines}", package["name"])));
            }
        }
    }
    Ok((files, wrong))
}

/// The arrows of all circles, a line each: between files, or else between the modules of a folder, each taken with
/// everything below it.
fn circles(tree: &Tree, folder: &Path) -> Option<String> {
    let arrows = tree.arrows();
    let mut found = in_circles(arrows.keys().copied().collect());
    if found.is_empty() {
        let mut folders: BTreeMap<_, BTreeMap<_, Vec<_>>> = BTreeMap::new();
        for (from, to) in arrows.keys() {
            let (a, b) = (&tree.names[*from], &tree.names[*to]);
            let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
            if let (Some(x), Some(y)) = (a.get(common), b.get(common)) {
                folders.entry(&a[..common]).or_default().entry((x, y)).or_default().push((*from, *to));
            }
        }
        for modules in folders.into_values() {
            let wrong = in_circles(modules.keys().copied().collect());
            found.extend(wrong.iter().flat_map(|arrow| &modules[arrow]));
        }
    }
    let lines = found.iter().map(|(from, to)| {
        let shown =
            |file: usize| tree.files[file].strip_prefix(folder).unwrap_or(&tree.files[file]).display();
        let named = &arrows[&(*from, *to)];
        format!("  {} -> {}  (line {}: {})", shown(*from), shown(*to), named.line, named.path.join("::"))
    });
    (!found.is_empty()).then(|| lines.collect::<Vec<_>>().join("\n"))
}

/// The arrows that lie in circles or between two of them. An arrow whose start no arrow reaches, or whose end none
/// leaves, is in none; those are removed until none is left.
fn in_circles<T: Ord + Copy>(mut arrows: BTreeSet<(T, T)>) -> BTreeSet<(T, T)> {
    loop {
        let starts: BTreeSet<T> = arrows.iter().map(|(from, _)| *from).collect();
        let ends: BTreeSet<T> = arrows.iter().map(|(_, to)| *to).collect();
        let before = arrows.len();
        arrows.retain(|(from, to)| ends.contains(from) && starts.contains(to));
        if arrows.len() == before {
            return arrows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrows in circles of a crate whose files have these texts.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, text).expect("written");
        }
        let tree = Tree::read(&folder.path().join("lib.rs")).expect("readable");
        circles(&tree, folder.path()).iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
    }

    #[test]
    fn only_arrows_of_circles_are_left() {
        let arrows = BTreeSet::from([(0, 1), (1, 0), (1, 2), (2, 3), (3, 4)]);
        assert_eq!(in_circles(arrows), BTreeSet::from([(0, 1), (1, 0)]));
        assert!(in_circles(BTreeSet::from([(0, 1), (0, 2), (1, 3), (2, 3)])).is_empty());
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
            let b = ("b.rs", "use crate::a::f; pub struct B;");
            assert_eq!(of(&[LIB, ("a.rs", a), b]).len(), 2, "{a}");
        }
    }

    #[test]
    fn tests_comments_and_strings_make_none() {
        for a in [
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(all(test, unix))] use crate::b::B;",
            "// crate::b::B\nconst X: &str = \"crate::b::B\";",
        ] {
            assert!(of(&[LIB, ("a.rs", a), ("b.rs", "use crate::a::f;")]).is_empty(), "{a}");
        }
    }

    #[test]
    fn a_name_that_is_handed_on_counts_for_the_file_that_defines_it() {
        let lib = ("lib.rs", "mod a; mod b; pub use b::B;");
        let a = ("a.rs", "use crate::B; pub struct A;");
        assert!(of(&[lib, a, ("b.rs", "pub struct B;")]).is_empty());
        assert_eq!(of(&[lib, a, ("b.rs", "use crate::a::A; struct B;")]).len(), 2);
        let all = ("lib.rs", "mod a; mod b; pub use b::*; fn own() {}");
        let b = ("b.rs", "pub struct B; fn f() { crate::own() }");
        assert!(of(&[all, ("a.rs", "use crate::B;"), b]).is_empty());
    }

    #[test]
    fn a_child_that_uses_what_its_user_defines_makes_a_circle() {
        let c = ("a/c.rs", "use super::A; pub fn g() {}");
        let of_a = |text| of(&[("lib.rs", "mod a;"), ("a/mod.rs", text), c]).len();
        assert_eq!(of_a("mod c; pub struct A; fn f() { c::g() }"), 2);
        assert_eq!(of_a("mod c; pub struct A;"), 0);
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
        assert!(circles.contains(&"  a/c.rs -> b.rs  (line 1: crate::b::B)".to_owned()), "{circles:?}");
        assert_eq!(circles.len(), 2);
    }
}
