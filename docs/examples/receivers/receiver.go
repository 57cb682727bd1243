// Receives callbacks with Go's standard library alone.
//
// Usage: go run receiver.go SECRET_FILE [SECRET_FILE], two during a rotation. PORT is 9000 unless it is set.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance  = 300 // seconds, in either direction
	maxBody    = 4 << 20
	remembered = 100000
)

var number = regexp.MustCompile(`^[0-9]{1,12}$`)

// The key is what the base64 after `whsec_` stands for. A short one, above all an empty one, could be guessed.
func readKey(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	before, coded, found := strings.Cut(strings.TrimSpace(string(text)), "whsec_")
	key, err := base64.StdEncoding.DecodeString(coded)
	if !found || before != "" || err != nil || len(key) < 24 {
		return nil, fmt.Errorf("%s: a secret must be whsec_ and the base64 of at least 24 bytes", file)
	}
	return key, nil
}

// verify returns the id of a request that one of the keys has signed, or an error that names what is wrong.
func verify(headers http.Header, body []byte, keys [][]byte, now time.Time) (string, error) {
	id, timestamp := headers.Get("webhook-id"), headers.Get("webhook-timestamp")
	if id == "" || strings.Contains(id, ".") { // a dot separates the id from the timestamp
		return "", errors.New("webhook-id is missing or has a dot")
	}
	if !number.MatchString(timestamp) {
		return "", errors.New("webhook-timestamp is missing or not a number")
	}
	if !isSigned(keys, headers.Get("webhook-signature"), id+"."+timestamp+".", body) {
		return "", errors.New("no signature is valid")
	}
	sent, err := strconv.ParseInt(timestamp, 10, 64)
	if skew := now.Unix() - sent; err != nil || skew > tolerance || skew < -tolerance {
		// The time is of this attempt: a captured request cannot be sent later.
		return "", fmt.Errorf("webhook-timestamp is more than %d s from the time here", tolerance)
	}
	return id, nil
}

// isSigned: during a rotation the sender signs with both keys, and one valid signature is enough.
func isSigned(keys [][]byte, signatures, prefix string, body []byte) bool {
	for _, entry := range strings.Fields(signatures) {
		before, coded, found := strings.Cut(entry, "v1,")
		theirs, err := base64.StdEncoding.DecodeString(coded)
		if !found || before != "" || err != nil {
			continue
		}
		for _, key := range keys {
			ours := hmac.New(sha256.New, key)
			ours.Write([]byte(prefix))
			ours.Write(body)
			// hmac.Equal takes as long for a wrong signature as for one that is nearly right.
			if hmac.Equal(ours.Sum(nil), theirs) {
				return true
			}
		}
	}
	return false
}

// handle does what the callback is for. An error is answered with 500, so that the sender tries again.
func handle(id string, body []byte) error {
	_, err := fmt.Println(id, string(body))
	return err
}

type receiver struct {
	keys [][]byte
	turn sync.Mutex // the same request may arrive twice at the same time
	// In production a table with a unique id, written in the same transaction as what `handle` does.
	seen  map[string]bool
	order []string
}

func (r *receiver) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		response.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	// The bytes that are signed, not parsed JSON.
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, maxBody))
	if err != nil {
		response.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	id, err := verify(request.Header, body, r.keys, time.Now())
	if err != nil {
		http.Error(response, err.Error(), http.StatusUnauthorized)
		return
	}
	if err := r.handleOnce(id, body); err != nil {
		log.Print(err)
		response.WriteHeader(http.StatusInternalServerError)
		return
	}
	response.WriteHeader(http.StatusNoContent)
}

// handleOnce: the sender repeats a request, with the same id, if the answer was lost.
func (r *receiver) handleOnce(id string, body []byte) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.seen[id] {
		return nil
	}
	if err := handle(id, body); err != nil {
		return err
	}
	r.seen[id] = true
	r.order = append(r.order, id)
	if len(r.order) > remembered {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
	return nil
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: receiver SECRET_FILE [SECRET_FILE]")
	}
	hooks := &receiver{seen: map[string]bool{}}
	for _, file := range os.Args[1:] {
		key, err := readKey(file)
		if err != nil {
			log.Fatal(err)
		}
		hooks.keys = append(hooks.keys, key)
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "9000"
	}
	http.Handle("/hooks", hooks)
	server := &http.Server{Addr: "127.0.0.1:" + port, ReadTimeout: 20 * time.Second}
	log.Fatal(server.ListenAndServe())
}
