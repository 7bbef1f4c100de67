package worker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// maxUnixPathBytes is the size of sun_path on Linux less the terminating zero.
const maxUnixPathBytes = 107

var hostPort = regexp.MustCompile(`^(?:\[([\w.%]*:[\w.%:]*)\]|([\w.-]+)):([0-9]{1,5})$`)

// address is HOST:PORT, or a unix socket if path is set.
type address struct {
	host string
	port int
	path string
}

func (a address) String() string {
	if a.path != "" {
		return "unix:" + a.path
	}
	return net.JoinHostPort(a.host, strconv.Itoa(a.port))
}

func parseAddress(text string) (address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if strings.HasPrefix(path, "//") {
			path = "/" + strings.TrimLeft(path, "/")
		}
		switch {
		case path == "":
			return address{}, fmt.Errorf("%q has no path: unix:PATH is expected", text)
		case len(path) > maxUnixPathBytes:
			return address{}, fmt.Errorf("%q is too long: a unix socket's path has at most %d bytes", text, maxUnixPathBytes)
		}
		return address{path: path}, nil
	}
	found := hostPort.FindStringSubmatch(text)
	if found != nil {
		if port, _ := strconv.Atoi(found[3]); port <= 65535 {
			return address{host: found[1] + found[2], port: port}, nil
		}
	}
	return address{}, fmt.Errorf("%q is not an address: HOST:PORT, [IPV6]:PORT or unix:PATH is expected", text)
}

func (a address) listen() (net.Listener, error) {
	if a.path == "" {
		listener, err := net.Listen("tcp", a.String())
		if err != nil {
			return nil, fmt.Errorf("%s: %s", a, plain(err))
		}
		return listener, nil
	}
	if err := a.claim(); err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%s: %s", a, plain(err))
	}
	// The file may belong to another worker when this one closes.
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// claim removes a stale socket file, and fails if the socket is in use.
func (a address) claim() error {
	folder := filepath.Dir(a.path)
	if found, err := os.Stat(folder); err != nil || !found.IsDir() {
		return fmt.Errorf("there is no folder %s", folder)
	}
	found, err := os.Stat(a.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return errors.New(plain(err))
	case found.Mode()&os.ModeSocket == 0:
		return errors.New("the file exists and is not a socket")
	}
	probe, err := net.DialTimeout("unix", a.path, time.Second)
	switch {
	case err == nil:
		_ = probe.Close()
		return errors.New(plain(syscall.EADDRINUSE))
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(a.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return errors.New(plain(err))
		}
		return nil
	}
	return errors.New(plain(err))
}

// plain returns the cause of an error without its context, which the caller adds.
func plain(err error) string {
	text := err.Error()
	var number syscall.Errno
	if errors.As(err, &number) {
		text = number.Error()
	}
	first := []rune(text)
	if len(first) > 0 {
		first[0] = unicode.ToUpper(first[0])
	}
	return string(first)
}

// tlsConfig returns the TLS configuration; nil without TLS.
func tlsConfig(options Options) (*tls.Config, error) {
	cert, key, ca := options.CertFile, options.KeyFile, options.ClientCAFile
	if cert == "" && key == "" && ca == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("a certificate and its key go together, and a CA for clients needs both")
	}
	certPEM, err := read(cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := read(key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are not a PEM certificate and its key: %w", cert, key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if ca == "" {
		return config, nil
	}
	caPEM, err := read(ca)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(caPEM) {
		return nil, fmt.Errorf("%s holds no PEM certificate", ca)
	}
	return config, nil
}

func read(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, plain(err))
	}
	return content, nil
}
