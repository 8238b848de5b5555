fn main() {
    let w = std::env::args().nth(1).unwrap();
    use qkv_rope_cuda_ptx::*;
    match w.as_str() {
        "product" => print!("{}", product::ptx()),
        "prep" => print!("{}", prep::ptx(prep::Rows::Whole)),
        "any" => print!("{}", prep::ptx(prep::Rows::Any)),
        "finish" => print!("{}", finish::ptx()),
        _ => {}
    }
}
