// Judges a log that was written in the C2SP layout with Go's own code for transparency logs: GOPATH mode, `go run`.
//
// The folder holds `vkey`, `checkpoint`, the tiles, and `proofs.json`. Entry i of the log is the byte 1 and the SHA-256 of
// the decimal number i. It prints what it verified, or fails with what it refuses.
package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type proofs struct {
	Leaves    [][]byte // the hashes of all leaves, of a log of other entries
	Inclusion []struct {
		Index, Size int64
		Root        []byte
		Path        [][]byte
	}
	Consistency []struct {
		Old, New         int64
		OldRoot, NewRoot []byte
		Proof            [][]byte
	}
}

type folder string

func (dir folder) read(name string) []byte {
	data, err := os.ReadFile(filepath.Join(string(dir), name))
	check(err)
	return data
}

func (dir folder) Height() int { return 8 }

func (dir folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		// Go writes the height of tiles into their paths, C2SP does not.
		all = append(all, dir.read(strings.Replace(tile.Path(), "tile/8/", "tile/", 1)))
	}
	return all, nil
}

func (dir folder) SaveTiles(tiles []tlog.Tile, data [][]byte) {}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func hash(data []byte) (h tlog.Hash) {
	copy(h[:], data)
	return h
}

func hashes(all [][]byte) (made []tlog.Hash) {
	for _, one := range all {
		made = append(made, hash(one))
	}
	return made
}

func (given proofs) leaf(index int64) tlog.Hash {
	if given.Leaves != nil {
		return hash(given.Leaves[index])
	}
	digest := sha256.Sum256([]byte(strconv.FormatInt(index, 10)))
	return tlog.RecordHash(append([]byte{1}, digest[:]...))
}

func main() {
	log.SetFlags(0)
	dir := folder(os.Args[1])
	verifier, err := note.NewVerifier(string(dir.read("vkey")))
	check(err)
	opened, err := note.Open(dir.read("checkpoint"), note.VerifierList(verifier))
	check(err)
	lines := strings.Split(opened.Text, "\n")
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check(err)
	root, err := base64.StdEncoding.DecodeString(lines[2])
	check(err)
	tree := tlog.Tree{N: size, Hash: hash(root)}
	reader := tlog.TileHashReader(tree, dir)
	computed, err := tlog.TreeHash(size, reader)
	check(err)
	if lines[0] != verifier.Name() || computed != tree.Hash {
		log.Fatalf("another root than that of the tiles: %v", computed)
	}
	var given proofs
	check(json.Unmarshal(dir.read("proofs.json"), &given))
	for _, index := range []int64{0, 255, 256, size / 2, size - 1} {
		proof, err := tlog.ProveRecord(size, index, reader)
		check(err)
		check(tlog.CheckRecord(proof, size, tree.Hash, index, given.leaf(index)))
	}
	for _, one := range given.Inclusion {
		check(tlog.CheckRecord(hashes(one.Path), one.Size, hash(one.Root), one.Index, given.leaf(one.Index)))
	}
	for _, one := range given.Consistency {
		check(tlog.CheckTree(hashes(one.Proof), one.New, hash(one.NewRoot), one.Old, hash(one.OldRoot)))
	}
	fmt.Printf("%s %d %d %d\n", lines[0], size, len(given.Inclusion), len(given.Consistency))
}
