fn main() { script::worker::serve_process(std::io::BufReader::new(std::io::stdin()), std::io::stdout()).unwrap(); }
