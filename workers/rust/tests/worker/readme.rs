//! The README's program is the one in `tests/readme`, which is compiled and run as a test.

#[test]
fn the_readme_has_the_program_that_is_tested() {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```rust\n// ").skip(1).map(|rest| {
        let block = rest.split("```").next().expect("the block");
        block.split_once('\n').expect("a line that says where it goes").1
    });
    assert_eq!(blocks.collect::<Vec<_>>().join("\n"), include_str!("../readme/main.rs"));
}
